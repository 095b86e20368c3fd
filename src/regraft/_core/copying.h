/* The methods of a core, as in `core.py`. */

/* Borrowed; NULL without an exception if it was not chosen yet. */
static inline PyObject *
known_maker(Core *core, PyObject *obj)
{
    return memo_get(core->makers, key_of((PyObject *)Py_TYPE(obj)));
}

static PyObject *
maker_of(Core *core, PyObject *obj)
{
    PyObject *maker = known_maker(core, obj);
    if (maker != NULL) {
        return Py_NewRef(maker);
    }
    PyObject *kind = Py_NewRef(Py_TYPE(obj)); /* Who chooses may run any code. */
    maker = PyObject_CallOneArg(core->choose, obj);
    if (maker != NULL && (PyList_Append(core->kinds, kind) ||
                          memo_set(core->makers, key_of(kind), maker))) {
        Py_CLEAR(maker);
    }
    Py_DECREF(kind);
    return maker;
}

/* Calls a maker in Python, which may come back here for the parts of the object. That
   takes room on the stack of C, where Python's own limit, which users may raise, does
   not count it. */
static PyObject *
made_in_python(Core *core, PyObject *maker, PyObject *obj)
{
    if (core->depth >= DEEPEST) {
        return PyErr_Format(PyExc_RecursionError, "%d makers wait for each other",
                            DEEPEST);
    }
    core->depth++;
    PyObject *new = call(maker, core, obj);
    core->depth--;
    return new;
}

/* The copy of an object that was not met before. */
static PyObject *
made(Core *core, PyObject *obj, Key key)
{
    PyObject *maker = maker_of(core, obj);
    if (maker == NULL) {
        return NULL;
    }
    PyObject *new = Py_IS_TYPE(maker, Maker_Type)
                        ? make((Maker *)maker, core, obj, key)
                        : made_in_python(core, maker, obj);
    Py_DECREF(maker);
    return new;
}

static PyObject *
copy_of(Core *core, PyObject *obj)
{
    if (is_atom(obj)) {
        return Py_NewRef(obj);
    }
    Key key = key_of(obj);
    PyObject *new = memo_get(core->memo, key);
    if (new != NULL) {
        return Py_NewRef(new);
    }
    int kept = 0;
    if (core->keep != Py_None) {
        kept = is_true(PyObject_CallOneArg(core->keep, obj));
    }
    if (kept == 0) {
        return made(core, obj, key);
    }
    return kept == 1 && !memo_set(core->memo, key, obj) ? Py_NewRef(obj) : NULL;
}


/* --- translate --------------------------------------------------------------------- */

/* Whether a tuple holds nothing but atoms; if so, notes that one may be an id. */
static int
holds_atoms(PyObject *items, int *holds_ids)
{
    int found = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        if (!is_atom(item)) {
            return 0;
        }
        found |= may_be_id(item);
    }
    *holds_ids |= found;
    return 1;
}

static PyObject *
translated(Core *core, PyObject *value, int *holds_ids)
{
    if (PyTuple_CheckExact(value)) {
        PyObject *found = find(core, value);
        if (found != NULL) {
            return Py_NewRef(found);
        }
        if (holds_atoms(value, holds_ids)) {
            return Py_NewRef(value);
        }
    }
    return copy_of(core, value);
}

/* Whether there may be ids among the values, or -1 if it failed. */
static int
translate(Core *core, PyObject *state)
{
    int holds_ids = 0;
    Py_ssize_t place = 0;
    PyObject *name, *value;
    while (PyDict_Next(state, &place, &name, &value)) {
        if (is_atom(value)) {
            holds_ids |= may_be_id(value);
            continue;
        }
        /* Makers run any code, but nobody else has this dict: its keys stay. */
        Py_INCREF(name);
        Py_INCREF(value);
        PyObject *new = translated(core, value, &holds_ids);
        int failed = new == NULL || (new != value && PyDict_SetItem(state, name, new));
        Py_XDECREF(new);
        Py_DECREF(name);
        Py_DECREF(value);
        if (failed) {
            return -1;
        }
    }
    return holds_ids;
}

static PyObject *
translate_all(Core *core, PyObject *state)
{
    if (!PyDict_Check(state)) {
        return PyErr_Format(PyExc_TypeError, "expected a dict, received %R", state);
    }
    int holds_ids = translate(core, state);
    return holds_ids < 0 ? NULL : PyBool_FromLong(holds_ids);
}

/* 0, or -1 if it failed. */
static int
copy_items_to(Core *core, PyObject *state, PyObject *target)
{
    PyObject *copies = PyDict_Copy(state);
    int holds_ids = copies == NULL ? -1 : translate(core, copies);
    int failed = holds_ids < 0 || PyDict_Update(target, copies) ||
                 (holds_ids && PyList_Append(core->with_ids, target));
    Py_XDECREF(copies);
    return failed ? -1 : 0;
}

static PyObject *
copy_items(Core *core, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyDict_Check(args[0]) || !PyDict_Check(args[1])) {
        return PyErr_Format(PyExc_TypeError, "expected two dicts");
    }
    return copy_items_to(core, args[0], args[1]) ? NULL : Py_NewRef(Py_None);
}

/* The copies of the items of a list, in a new one. */
static PyObject *
copies_in_list(Core *core, PyObject *items)
{
    PyObject *copies = PyList_New(0);
    /* Makers run any code: the list may become shorter. */
    for (Py_ssize_t i = 0; copies != NULL && i < PyList_GET_SIZE(items); i++) {
        PyObject *item = Py_NewRef(PyList_GET_ITEM(items, i));
        PyObject *new = copy_of(core, item);
        Py_DECREF(item);
        if (new == NULL || PyList_Append(copies, new)) {
            Py_CLEAR(copies);
        }
        Py_XDECREF(new);
    }
    return copies;
}

static PyObject *
copies_of(Core *core, PyObject *items)
{
    if (!PyList_Check(items)) {
        return PyErr_Format(PyExc_TypeError, "expected a list, received %R", items);
    }
    return copies_in_list(core, items);
}


/* --- shells ------------------------------------------------------------------------ */

/* Called with the walk, the object and the shell, which make_container() put off. */
static PyObject *
fill_list(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Core *core = (Core *)args[0];
    PyObject *obj = args[1], *new = args[2];
    PyObject *copies = copies_in_list(core, obj);
    if (copies == NULL) {
        return NULL;
    }
    int holds_ids = 0;
    for (Py_ssize_t i = 0; !holds_ids && i < PyList_GET_SIZE(copies); i++) {
        holds_ids = is_or_holds_id(PyList_GET_ITEM(copies, i));
    }
    int failed = PyList_SetSlice(new, 0, PyList_GET_SIZE(new), copies) ||
                 (holds_ids && PyList_Append(core->with_ids, new));
    Py_DECREF(copies);
    return failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *
fill_names(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    int failed = copy_items_to((Core *)args[0], args[1], args[2]);
    return failed ? NULL : Py_NewRef(Py_None);
}


/* --- settle ------------------------------------------------------------------------ */

/* The copy of a container that has simple items and nothing else; NULL without an
   exception for everything else. */
static PyObject *
simple_copy(Core *core, PyObject *value)
{
    Maker *maker = (Maker *)known_maker(core, value);
    if (maker == NULL || !Py_IS_TYPE(maker, Maker_Type) || core->keep != Py_None ||
        maker->shape == AN_INSTANCE || maker->has_attributes != 0) {
        return NULL;
    }
    Shape shape = maker->shape;
    return has_simple_items(shape, value) == 1 ? bare_copy(shape, value) : NULL;
}

/* What stands for an attribute, if it is simple or known; NULL without an exception if
   it is neither. */
static PyObject *
settled(Core *core, PyObject *value)
{
    Key key = key_of(value);
    PyObject *new = memo_get(core->memo, key);
    if (new != NULL) {
        return Py_NewRef(new);
    }
    if (PyTuple_CheckExact(value)) {
        return is_simple_tuple(value) ? Py_NewRef(value) : NULL;
    }
    new = simple_copy(core, value);
    if (new != NULL && memo_set(core->memo, key, new)) {
        Py_CLEAR(new);
    }
    return new;
}

/* 1, 0, or -1 if it failed. */
static int
settle(Core *core, PyObject *state)
{
    Py_ssize_t place = 0;
    PyObject *name, *value;
    while (PyDict_Next(state, &place, &name, &value)) {
        if (is_simple(value)) {
            continue;
        }
        PyObject *new = is_atom(value) ? NULL : settled(core, value);
        int done = new != NULL && (new == value || !PyDict_SetItem(state, name, new));
        Py_XDECREF(new);
        if (!done) {
            return PyErr_Occurred() ? -1 : 0;
        }
    }
    return 1;
}

static PyObject *
settle_all(Core *core, PyObject *state)
{
    if (!PyDict_Check(state)) {
        return PyErr_Format(PyExc_TypeError, "expected a dict, received %R", state);
    }
    int all = settle(core, state);
    return all < 0 ? NULL : PyBool_FromLong(all);
}


/* --- what is known ----------------------------------------------------------------- */

static PyObject *
remember(Core *core, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        return PyErr_Format(PyExc_TypeError, "expected an object and its copy");
    }
    return memo_set(core->memo, key_of(args[0]), args[1]) ? NULL : Py_NewRef(args[1]);
}

static PyObject *
known(Core *core, PyObject *obj)
{
    PyObject *found = find(core, obj);
    return Py_NewRef(found == NULL ? Py_None : found);
}

static PyObject *
stand_in(Core *core, PyObject *obj)
{
    PyObject *found = find(core, obj);
    return Py_NewRef(found == NULL ? obj : found);
}

static PyObject *
known_items(Core *core, PyObject *items)
{
    if (!PyList_Check(items)) {
        return PyErr_Format(PyExc_TypeError, "expected a list, received %R", items);
    }
    PyObject *copies = PyList_New(0);
    for (Py_ssize_t i = 0; copies != NULL && i < PyList_GET_SIZE(items); i++) {
        PyObject *found = find(core, PyList_GET_ITEM(items, i));
        if (found != NULL && PyList_Append(copies, found)) {
            Py_CLEAR(copies);
        }
    }
    return copies;
}

static PyObject *
fill_later(Core *core, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) {
        return PyErr_Format(PyExc_TypeError, "expected fill, an object and its copy");
    }
    return put_off(core, args[0], args[1], args[2]) ? NULL : Py_NewRef(Py_None);
}
