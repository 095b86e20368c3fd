/* Makers of containers and of instances, as in `makers.py`. */

typedef enum { A_LIST, A_DICT, AN_ORDERED_DICT, A_SET, AN_INSTANCE } Shape;

static PyTypeObject *bases[5];    /* of each shape */
static PyObject *constructors[5]; /* `__new__` of each */
static PyObject *set_update;      /* set.update */
static PyObject *no_arguments;    /* () */
static PyObject *dict_name;       /* "__dict__" */
static PyObject *fills[2];        /* `fill_list` and `fill_names`, by shape */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Shape shape;
    int has_attributes;     /* -1 stands for None */
    int at_once;            /* of instances */
    PyObject *fill;
    PyObject *noted_in;     /* or NULL, as the next two */
    PyObject *without;
    PyObject *stands_alone;
    PyTypeObject *known;    /* the class of the last object, or NULL */
} Maker;

static PyTypeObject *Maker_Type;

/* A shell of the class of an object. `__new__` checks whether it serves that class; once
   it has, it need not be asked again. */
static PyObject *
new_shell(Maker *maker, PyObject *obj)
{
    PyTypeObject *kind = Py_TYPE(obj);
    if (maker->known == kind) {
        return bases[maker->shape]->tp_new(kind, no_arguments, NULL);
    }
    Py_INCREF(kind);
    PyObject *new = PyObject_CallOneArg(constructors[maker->shape], (PyObject *)kind);
    if (new == NULL) {
        Py_DECREF(kind);
        return NULL;
    }
    Py_XSETREF(maker->known, kind);
    return new;
}

/* What `object.__setattr__` does with a `__dict__`. `PyObject_GenericSetDict` leaves
   Python 3.13 the attributes that lie in the object itself. */
static int
set_attributes(PyObject *new, PyObject *state)
{
    return PyObject_GenericSetAttr(new, dict_name, state);
}


/* --- containers -------------------------------------------------------------------- */

/* An `OrderedDict` has attributes, though hardly anybody gives it one. */
static int
is_empty_ordered_dict(PyObject *obj)
{
    if (!PyODict_CheckExact(obj) || PyDict_GET_SIZE(obj) != 0) {
        return 0;
    }
    PyObject **attributes = _PyObject_GetDictPtr(obj);
    return attributes == NULL || *attributes == NULL ||
           PyDict_GET_SIZE(*attributes) == 0;
}

/* 1, 0, or -1 if it failed. */
static int
has_simple_items(Shape shape, PyObject *obj)
{
    switch (shape) {
    case A_LIST:
        return is_simple_list(obj);
    case A_DICT:
        return is_simple_dict(obj);
    case A_SET:
        return is_simple_set(obj);
    default:
        return is_empty_ordered_dict(obj);
    }
}

/* Past what the class of either does with items, for it may do anything. */
static int
add_items(Shape shape, PyObject *new, PyObject *obj)
{
    int failed = 0;
    if (shape == A_LIST) {
        for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(obj); i++) {
            failed = PyList_Append(new, PyList_GET_ITEM(obj, i));
        }
    }
    else if (shape == A_DICT) {
        Py_ssize_t place = 0;
        PyObject *key, *value;
        while (!failed && PyDict_Next(obj, &place, &key, &value)) {
            failed = PyDict_SetItem(new, key, value);
        }
    }
    else if (shape == A_SET && PySet_GET_SIZE(obj)) {
        PyObject *both[] = {new, obj};
        PyObject *none = PyObject_Vectorcall(set_update, both, 2, NULL);
        failed = none == NULL ? -1 : 0;
        Py_XDECREF(none);
    }
    return failed;
}

/* The copy of what has simple items and nothing else. */
static PyObject *
bare_copy(Shape shape, PyObject *obj)
{
    switch (shape) {
    case A_LIST:
        return PyList_GetSlice(obj, 0, PyList_GET_SIZE(obj));
    case A_DICT:
        return PyDict_Copy(obj);
    case A_SET:
        return PySet_New(obj);
    default: /* Past its `__init__`, which has nothing to do. */
        return PyODict_Type.tp_new(&PyODict_Type, no_arguments, NULL);
    }
}

/* Gives a shell the attributes of its original, if all are simple or known: 1, 0, or -1
   if it failed. */
static int
settle_attributes(Core *core, PyObject *obj, PyObject *new)
{
    PyObject *state = PyObject_GenericGetDict(obj, NULL);
    if (state == NULL) {
        return -1;
    }
    int settled = 0;
    /* A dict that is met elsewhere is often the object itself. */
    if (find(core, state) == NULL) {
        settled = PyDict_GET_SIZE(state) == 0;
        if (!settled) {
            PyObject *copies = PyDict_Copy(state);
            settled = copies == NULL ? -1 : settle(core, copies);
            if (settled == 1 && set_attributes(new, copies) < 0) {
                settled = -1;
            }
            Py_XDECREF(copies);
        }
    }
    Py_DECREF(state);
    return PyErr_Occurred() ? -1 : settled;
}

static int
has_names(PyObject *items)
{
    Py_ssize_t place = 0;
    PyObject *key;
    while (PyDict_Next(items, &place, &key, NULL)) {
        if (!PyUnicode_CheckExact(key)) {
            return 0;
        }
    }
    return 1;
}

/* What fills the copy of a container. */
static PyObject *
fill_of(Maker *maker, PyObject *obj)
{
    int is_list = Py_IS_TYPE(obj, &PyList_Type);
    if (is_list || (Py_IS_TYPE(obj, &PyDict_Type) && has_names(obj))) {
        return fills[maker->shape];
    }
    return maker->fill;
}

static PyObject *
make_container(Maker *maker, Core *core, PyObject *obj, Key key)
{
    int simple = maker->has_attributes < 0 ? 0 : has_simple_items(maker->shape, obj);
    int is_bare = simple == 1 && !maker->has_attributes;
    PyObject *new = NULL;
    if (simple >= 0) {
        new = is_bare ? bare_copy(maker->shape, obj) : new_shell(maker, obj);
    }
    if (new == NULL || memo_set(core->memo, key, new)) {
        goto fail;
    }
    if (!is_bare) {
        simple = simple ? settle_attributes(core, obj, new) : 0;
        if (simple < 0 || (simple ? add_items(maker->shape, new, obj)
                                  : put_off(core, fill_of(maker, obj), obj, new))) {
            goto fail;
        }
    }
    return new;
fail:
    Py_XDECREF(new);
    return NULL;
}


/* --- instances --------------------------------------------------------------------- */

/* Asked of objects with next to nothing on them: 1, 0, or -1 if it failed. */
static int
stands_alone(Maker *maker, Core *core, PyObject *obj, PyObject *state)
{
    if (maker->stands_alone == NULL || PyDict_GET_SIZE(state) > 1) {
        return 0;
    }
    Py_ssize_t place = 0;
    PyObject *value;
    if (PyDict_Next(state, &place, NULL, &value) && !PyUnicode_CheckExact(value)) {
        return 0;
    }
    return is_true(call(maker->stands_alone, core, obj));
}

/* Gives a shell the attributes of its original, now or later. */
static int
give_attributes(Maker *maker, Core *core, PyObject *obj, PyObject *new, PyObject *state)
{
    PyObject *copies = PyDict_Copy(state);
    if (copies == NULL) {
        return -1;
    }
    int settled = -1;
    if (maker->without == NULL || !PyDict_SetItem(copies, maker->without, Py_None)) {
        settled = settle(core, copies);
    }
    if (settled == 1) {
        settled = set_attributes(new, copies);
    }
    else if (settled == 0) {
        settled = put_off(core, maker->fill, obj, new);
    }
    Py_DECREF(copies);
    return settled;
}

static int
note(Maker *maker, Core *core, PyObject *obj, PyObject *new)
{
    PyObject *list = PyObject_GetAttr((PyObject *)core, maker->noted_in);
    PyObject *pair = list == NULL ? NULL : PyTuple_Pack(2, obj, new);
    int failed = pair == NULL ? -1 : PyList_Append(list, pair);
    Py_XDECREF(list);
    Py_XDECREF(pair);
    return failed;
}

static PyObject *
make_instance(Maker *maker, Core *core, PyObject *obj, Key key)
{
    PyObject *state = PyObject_GenericGetDict(obj, NULL);
    if (state == NULL) {
        return NULL;
    }
    PyObject *new = NULL;
    int alone = stands_alone(maker, core, obj, state);
    if (alone == 1) {
        new = Py_NewRef(obj);
    }
    else if (alone == 0) {
        new = new_shell(maker, obj);
    }
    if (new == NULL || memo_set(core->memo, key, new)) {
        goto fail;
    }
    if (!alone) {
        if (!maker->at_once) {
            if (put_off(core, maker->fill, obj, new)) {
                goto fail;
            }
        }
        else if (PyDict_GET_SIZE(state) &&
                 give_attributes(maker, core, obj, new, state) < 0) {
            goto fail;
        }
        if (maker->noted_in != NULL && note(maker, core, obj, new) < 0) {
            goto fail;
        }
    }
    Py_DECREF(state);
    return new;
fail:
    Py_DECREF(state);
    Py_XDECREF(new);
    return NULL;
}


/* --- what makes them --------------------------------------------------------------- */

static inline PyObject *
make(Maker *maker, Core *core, PyObject *obj, Key key)
{
    return maker->shape == AN_INSTANCE ? make_instance(maker, core, obj, key)
                                       : make_container(maker, core, obj, key);
}

static PyObject *
maker_call(PyObject *maker, PyObject *const *args, size_t flags, PyObject *names)
{
    if (PyVectorcall_NARGS(flags) != 2 || names != NULL ||
        !PyObject_TypeCheck(args[0], Core_Type)) {
        return PyErr_Format(PyExc_TypeError, "a maker takes a walk and an object");
    }
    return make((Maker *)maker, (Core *)args[0], args[1], key_of(args[1]));
}

static Maker *
new_maker(Shape shape, PyObject *fill)
{
    Maker *maker = PyObject_GC_New(Maker, Maker_Type);
    if (maker != NULL) {
        maker->vectorcall = maker_call;
        maker->shape = shape;
        maker->has_attributes = 0;
        maker->at_once = 1;
        maker->fill = Py_NewRef(fill);
        maker->noted_in = maker->without = maker->stands_alone = NULL;
        maker->known = NULL;
        PyObject_GC_Track(maker);
    }
    return maker;
}

static PyObject *
container_maker(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"base", "kind", "fill", "has_attributes", NULL};
    PyObject *base, *kind, *fill, *has_attributes = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOO|$O", names, &base, &kind,
                                     &fill, &has_attributes)) {
        return NULL;
    }
    Shape shape = A_LIST;
    while (shape < AN_INSTANCE && base != (PyObject *)bases[shape]) {
        shape++;
    }
    if (shape == AN_INSTANCE) {
        PyErr_SetObject(PyExc_KeyError, base);
        return NULL;
    }
    if (has_attributes == NULL) {
        return PyErr_Format(PyExc_TypeError, "expected `has_attributes`");
    }
    Maker *maker = new_maker(shape, fill);
    if (maker != NULL) {
        maker->has_attributes = has_attributes == Py_None ? -1
                                                          : has_attributes == Py_True;
    }
    return (PyObject *)maker;
}

static PyObject *
instance_maker(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"fill",         "noted_in", "without",
                            "stands_alone", "at_once",  NULL};
    PyObject *fill, *noted_in = Py_None, *without = Py_None, *alone = Py_None;
    int at_once = 1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$OOOp", names, &fill, &noted_in,
                                     &without, &alone, &at_once)) {
        return NULL;
    }
    Maker *maker = new_maker(AN_INSTANCE, fill);
    if (maker != NULL) {
        maker->at_once = at_once;
        maker->noted_in = noted_in == Py_None ? NULL : Py_NewRef(noted_in);
        maker->without = without == Py_None ? NULL : Py_NewRef(without);
        maker->stands_alone = alone == Py_None ? NULL : Py_NewRef(alone);
    }
    return (PyObject *)maker;
}
