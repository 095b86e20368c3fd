/* What every layer has, as in `layers.py`. */

static int
has_core(PyObject *const *args, Py_ssize_t count, Py_ssize_t expected)
{
    if (count == expected && PyObject_TypeCheck(args[0], Core_Type)) {
        return 1;
    }
    PyErr_Format(PyExc_TypeError, "expected a walk and %zd more", expected - 1);
    return 0;
}


/* --- stores ------------------------------------------------------------------------ */

static PyObject *
ids_of(PyObject *items)
{
    PyObject *ids = PySet_New(NULL);
    for (Py_ssize_t i = 0; ids != NULL && i < PyList_GET_SIZE(items); i++) {
        PyObject *id = PyLong_FromVoidPtr(PyList_GET_ITEM(items, i));
        if (id == NULL || PySet_Add(ids, id)) {
            Py_CLEAR(ids);
        }
        Py_XDECREF(id);
    }
    return ids;
}

/* Whether these are the ids of the items: 1, 0, or -1 if it failed. */
static int
are_ids_of(PyObject *ids, PyObject *items)
{
    if (PyList_GET_SIZE(items) == 0 && PyAnySet_CheckExact(ids)) {
        return PySet_GET_SIZE(ids) == 0;
    }
    PyObject *right = ids_of(items);
    int same = right == NULL ? -1 : PyObject_RichCompareBool(ids, right, Py_EQ);
    Py_XDECREF(right);
    return same;
}

/* Copies a list of which nobody knows yet, and tells whether these were the ids of its
   items, or -1 if it failed. */
static int
copy_store(Core *core, PyObject *store, Key key, PyObject *ids, PyObject **twin,
           PyObject **new_ids)
{
    *twin = PyList_New(0);
    if (*twin == NULL || memo_set(core->memo, key, *twin)) {
        return -1;
    }
    if (PyList_GET_SIZE(store)) {
        PyObject *copies = copies_in_list(core, store);
        int failed = copies == NULL || PyList_SetSlice(*twin, 0, 0, copies);
        Py_XDECREF(copies);
        if (failed) {
            return -1;
        }
    }
    *new_ids = ids_of(*twin);
    return *new_ids == NULL ? -1 : are_ids_of(ids, store);
}

/* Puts the copy of `(test, store)`, and of the ids in it, in their places: whether the
   latter are complete, or -1 if it failed. */
static int
copy_entry(Core *core, PyObject *name, PyObject *entry, PyObject *ids,
           PyObject *new_stores, PyObject *new_ids)
{
    if (!PyTuple_CheckExact(entry) || PyTuple_GET_SIZE(entry) != 2) {
        PyErr_Format(PyExc_ValueError, "expected a test and a list, received %R", entry);
        return -1;
    }
    PyObject *test = PyTuple_GET_ITEM(entry, 0), *store = PyTuple_GET_ITEM(entry, 1);
    PyObject *own = PyDict_GetItemWithError(ids, name); /* borrowed */
    if (PyErr_Occurred()) {
        return -1;
    }
    PyObject *twin = NULL, *twin_ids = NULL, *new_test = NULL, *pair = NULL;
    int complete = 0;
    if (find(core, store) != NULL || !PyList_CheckExact(store) || own == NULL) {
        twin = copy_of(core, store);
    }
    else {
        Py_INCREF(own);
        complete = copy_store(core, store, key_of(store), own, &twin, &twin_ids);
        Py_DECREF(own);
    }
    if (complete >= 0 && twin != NULL) {
        int is_bare = PyFunction_Check(test) && PyFunction_GET_CLOSURE(test) == NULL;
        new_test = is_bare ? Py_NewRef(test) : copy_of(core, test);
        pair = new_test == NULL ? NULL : PyTuple_Pack(2, new_test, twin);
    }
    if (pair == NULL || PyDict_SetItem(new_stores, name, pair) ||
        (twin_ids != NULL && PyDict_SetItem(new_ids, name, twin_ids))) {
        complete = -1;
    }
    Py_XDECREF(twin);
    Py_XDECREF(twin_ids);
    Py_XDECREF(new_test);
    Py_XDECREF(pair);
    return complete;
}

static PyObject *
copy_stores(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!has_core(args, count, 3)) {
        return NULL;
    }
    PyObject *stores = args[1], *ids = args[2];
    if (!PyDict_Check(stores) || !PyDict_Check(ids)) {
        return PyErr_Format(PyExc_TypeError, "expected two dicts");
    }
    int complete = PyDict_GET_SIZE(stores) == PyDict_GET_SIZE(ids);
    PyObject *new_stores = PyDict_Copy(stores), *new_ids = PyDict_New();
    PyObject *result = NULL;
    if (new_stores == NULL || new_ids == NULL) {
        goto done;
    }
    /* Nobody else has the copy: its keys stay. */
    Py_ssize_t place = 0;
    PyObject *name, *entry;
    while (PyDict_Next(new_stores, &place, &name, &entry)) {
        Py_INCREF(name);
        Py_INCREF(entry);
        int is_whole =
            copy_entry((Core *)args[0], name, entry, ids, new_stores, new_ids);
        Py_DECREF(name);
        Py_DECREF(entry);
        if (is_whole < 0) {
            goto done;
        }
        complete &= is_whole;
    }
    result = PyTuple_Pack(3, new_stores, new_ids, complete ? Py_True : Py_False);
done:
    Py_XDECREF(new_stores);
    Py_XDECREF(new_ids);
    return result;
}


/* --- lists of calls ---------------------------------------------------------------- */

/* The shell of a list of an own class, NULL without an exception if it is not simple. */
static PyObject *
list_with_attributes(Core *core, PyObject *items)
{
    Maker *maker = (Maker *)maker_of(core, items);
    if (maker == NULL) {
        return NULL;
    }
    PyObject *new = NULL;
    if (Py_IS_TYPE(maker, Maker_Type) && maker->shape == A_LIST &&
        maker->has_attributes == 1) {
        new = new_shell(maker, items);
        if (new != NULL && settle_attributes(core, items, new) != 1) {
            Py_CLEAR(new);
        }
    }
    Py_DECREF(maker);
    return new;
}

/* An empty list like another one, which is remembered; NULL without an exception if that
   is not simple. */
static PyObject *
new_empty(Core *core, PyObject *items)
{
    PyObject *new =
        PyList_CheckExact(items) ? PyList_New(0) : list_with_attributes(core, items);
    if (new != NULL && memo_set(core->memo, key_of(items), new)) {
        Py_CLEAR(new);
    }
    return new;
}

static PyObject *
empty_like(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!has_core(args, count, 2)) {
        return NULL;
    }
    PyObject *new = new_empty((Core *)args[0], args[1]);
    return new == NULL && !PyErr_Occurred() ? Py_NewRef(Py_None) : new;
}


/* --- layers ------------------------------------------------------------------------ */

/* `LayerParts`, by the order of its fields. */
enum { TRACKER, CALLS, LOSSES, WRAPPERS, HOLLOW };

/* An attribute that the walk has not met; NULL without an exception if there is none. */
static PyObject *
unknown_in(Core *core, PyObject *state, PyObject *name)
{
    PyObject *value = PyDict_GetItemWithError(state, name);
    int is_unknown = value != NULL && value != Py_None && find(core, value) == NULL;
    return is_unknown ? Py_NewRef(value) : NULL;
}

/* Each of these gives 0, or -1 if it failed. */

static int
copy_first(Core *core, PyObject *state, PyObject *name)
{
    PyObject *tracker = unknown_in(core, state, name);
    PyObject *new = tracker == NULL ? NULL : copy_of(core, tracker);
    Py_XDECREF(tracker);
    Py_XDECREF(new);
    return PyErr_Occurred() ? -1 : 0;
}

static int
hollow(Core *core, PyObject *items, PyObject *name, PyObject *parts)
{
    PyObject *hollow_list = PyTuple_GET_ITEM(parts, HOLLOW);
    PyObject *none = PyObject_CallFunctionObjArgs(hollow_list, core, items, name, NULL);
    Py_XDECREF(none);
    return none == NULL ? -1 : 0;
}

static int
hollow_calls(Core *core, PyObject *calls, PyObject *name, PyObject *parts)
{
    PyObject *new = new_empty(core, calls);
    if (new == NULL) {
        return PyErr_Occurred() ? -1 : hollow(core, calls, name, parts);
    }
    PyObject *entry = PyTuple_Pack(3, calls, new, name);
    int failed = entry == NULL || PyList_Append(core->node_lists, entry);
    Py_XDECREF(entry);
    Py_DECREF(new);
    return failed ? -1 : 0;
}

static int
hollow_lists(Core *core, PyObject *state, PyObject *parts)
{
    for (int part = CALLS; part <= LOSSES; part++) {
        PyObject *names = PyTuple_GET_ITEM(parts, part);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
            PyObject *name = PyTuple_GET_ITEM(names, i);
            PyObject *items = unknown_in(core, state, name);
            int failed = items == NULL && PyErr_Occurred();
            if (items != NULL && part == CALLS) {
                failed = hollow_calls(core, items, name, parts);
            }
            else if (items != NULL && PyList_Check(items) && PyList_GET_SIZE(items)) {
                failed = hollow(core, items, name, parts);
            }
            Py_XDECREF(items);
            if (failed) {
                return -1;
            }
        }
    }
    return 0;
}

static int
rewrap_all(Core *core, PyObject *state, PyObject *owner, PyObject *new, PyObject *codes)
{
    Around around = {NULL, NULL};
    Py_ssize_t place = 0;
    int failed = 0;
    PyObject *name, *code;
    while (!failed && PyDict_Next(codes, &place, &name, &code)) {
        /* A function that `functools.wraps` put around it may have brought it. */
        PyObject *wrapper = unknown_in(core, state, name);
        if (wrapper != NULL && PyFunction_Check(wrapper) &&
            PyFunction_GET_CODE(wrapper) == code) {
            failed = rewrap(core, wrapper, owner, new, &around);
        }
        Py_XDECREF(wrapper);
        failed = failed || PyErr_Occurred();
    }
    Py_XDECREF(around.new);
    return failed ? -1 : 0;
}

/* Gives a copy its attributes, in the dict that it has if it was filled before. */
static int
give_state(Core *core, PyObject *attributes, PyObject *shared, PyObject *new,
           PyObject *state)
{
    int holds_ids = translate(core, state), failed = holds_ids < 0;
    if (!failed && shared == NULL) {
        failed = memo_set(core->memo, key_of(attributes), state) ||
                 set_attributes(new, state);
    }
    else if (!failed) {
        failed = PyDict_Update(shared, state);
    }
    if (!failed && holds_ids) {
        failed = PyList_Append(core->with_ids, shared == NULL ? state : shared);
    }
    return failed ? -1 : 0;
}

/* Whether an object has its attributes in a dict: 1, or 0, also if it failed. */
static int
is_dict_of(PyObject *dict, PyObject *obj)
{
    PyObject *own = PyObject_GenericGetDict(obj, NULL);
    Py_XDECREF(own);
    return own == dict;
}

static int
fill_layer_parts(Core *core, PyObject *obj, PyObject *new, PyObject *attributes,
                 PyObject *parts, PyObject *prepare)
{
    PyObject *shared = Py_XNewRef(find(core, attributes));
    if (shared != NULL && !is_dict_of(shared, new)) {
        /* Two objects, one dict: so have their copies. */
        int failed = PyErr_Occurred() || set_attributes(new, shared);
        Py_DECREF(shared);
        return failed ? -1 : 0;
    }
    PyObject *state = PyDict_Copy(attributes);
    int failed = state == NULL ||
                 copy_first(core, state, PyTuple_GET_ITEM(parts, TRACKER)) ||
                 hollow_lists(core, state, parts);
    if (!failed && prepare != Py_None) {
        PyObject *none =
            PyObject_CallFunctionObjArgs(prepare, core, obj, new, state, NULL);
        failed = none == NULL;
        Py_XDECREF(none);
    }
    failed = failed ||
             rewrap_all(core, state, obj, new, PyTuple_GET_ITEM(parts, WRAPPERS)) ||
             give_state(core, attributes, shared, new, state);
    Py_XDECREF(shared);
    Py_XDECREF(state);
    return failed ? -1 : 0;
}

static PyObject *
fill_layer(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!has_core(args, count, 5)) {
        return NULL;
    }
    PyObject *parts = args[3];
    if (!PyTuple_Check(parts) || PyTuple_GET_SIZE(parts) != HOLLOW + 1 ||
        !PyTuple_Check(PyTuple_GET_ITEM(parts, CALLS)) ||
        !PyTuple_Check(PyTuple_GET_ITEM(parts, LOSSES)) ||
        !PyDict_Check(PyTuple_GET_ITEM(parts, WRAPPERS))) {
        return PyErr_Format(PyExc_TypeError, "expected `LayerParts`, received %R", parts);
    }
    PyObject *attributes = PyObject_GenericGetDict(args[1], NULL);
    if (attributes == NULL) {
        return NULL;
    }
    int failed =
        fill_layer_parts((Core *)args[0], args[1], args[2], attributes, parts, args[4]);
    Py_DECREF(attributes);
    return failed ? NULL : Py_NewRef(Py_None);
}
