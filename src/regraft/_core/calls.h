/* Calls of layers, as in `calls.py`. */

static int
has_tuples(PyObject *items)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        if (PyTuple_CheckExact(PyTuple_GET_ITEM(items, i))) {
            return 1;
        }
    }
    return 0;
}

static PyObject *
copies_in_tuple(Core *core, PyObject *items)
{
    Py_ssize_t size = PyTuple_GET_SIZE(items);
    PyObject *copies = PyTuple_New(size);
    for (Py_ssize_t i = 0; copies != NULL && i < size; i++) {
        PyObject *new = copy_of(core, PyTuple_GET_ITEM(items, i));
        if (new == NULL) {
            Py_CLEAR(copies);
        }
        else {
            PyTuple_SET_ITEM(copies, i, new);
        }
    }
    return copies;
}

static PyObject *
own_copy(Core *core, PyObject *value)
{
    if (PyList_CheckExact(value)) {
        return copies_in_list(core, value);
    }
    if (PyTuple_CheckExact(value) && !has_tuples(value)) {
        return copies_in_tuple(core, value);
    }
    if (PyDict_CheckExact(value) && is_simple_dict(value)) {
        return PyDict_Copy(value);
    }
    return copy_of(core, value);
}

static int fill_owned_parts(Core *core, PyObject *obj, PyObject *new, PyObject *inner);

/* The copy of an object that another one holds. */
static PyObject *
owned_copy(Core *core, PyObject *obj)
{
    PyObject *new =
        PyObject_CallOneArg(constructors[AN_INSTANCE], (PyObject *)Py_TYPE(obj));
    if (new != NULL && fill_owned_parts(core, obj, new, Py_None)) {
        Py_CLEAR(new);
    }
    return new;
}

/* 0, or -1 if it failed. */
static int
fill_owned_parts(Core *core, PyObject *obj, PyObject *new, PyObject *inner)
{
    PyObject *attributes = PyObject_GenericGetDict(obj, NULL);
    PyObject *state = attributes == NULL ? NULL : PyDict_Copy(attributes);
    Py_XDECREF(attributes);
    int failed = state == NULL;
    Py_ssize_t place = 0;
    PyObject *name, *value;
    while (!failed && PyDict_Next(state, &place, &name, &value)) {
        int is_inner =
            inner == Py_None ? 0 : PyObject_RichCompareBool(name, inner, Py_EQ);
        if (is_inner == 0 && is_atom(value)) {
            continue;
        }
        /* Makers run any code, but nobody else has this dict: its keys stay. */
        Py_INCREF(name);
        Py_INCREF(value);
        PyObject *copy = NULL;
        if (is_inner >= 0) {
            copy = is_inner ? owned_copy(core, value) : own_copy(core, value);
        }
        failed = copy == NULL || PyDict_SetItem(state, name, copy);
        Py_XDECREF(copy);
        Py_DECREF(name);
        Py_DECREF(value);
    }
    failed = failed || set_attributes(new, state);
    Py_XDECREF(state);
    return failed ? -1 : 0;
}

static PyObject *
fill_owned(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!has_core(args, count, 4)) {
        return NULL;
    }
    int failed = fill_owned_parts((Core *)args[0], args[1], args[2], args[3]);
    return failed ? NULL : Py_NewRef(Py_None);
}
