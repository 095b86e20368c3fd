/* What every layer has, as in `layers.py`. */

static PyObject *wrapped_name; /* "__wrapped__" */
static PyObject *annotations_name;

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

static PyObject *
empty_like(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!has_core(args, count, 2)) {
        return NULL;
    }
    Core *core = (Core *)args[0];
    PyObject *new = PyList_CheckExact(args[1]) ? PyList_New(0)
                                               : list_with_attributes(core, args[1]);
    if (new == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    if (memo_set(core->memo, key_of(args[1]), new)) {
        Py_CLEAR(new);
    }
    return new;
}


/* --- wrapped methods --------------------------------------------------------------- */

/* The attributes of a wrapper around another method; NULL without an exception if it
   has such that are not atoms. */
static PyObject *
attributes_around(PyObject *attributes, PyObject *method, PyObject *bound)
{
    Py_ssize_t place = 0;
    PyObject *name, *value;
    while (PyDict_Next(attributes, &place, &name, &value)) {
        int is_method = value == method && PyUnicode_CheckExact(name) &&
                        PyUnicode_Compare(name, wrapped_name) == 0;
        if (!is_method && !is_atom(value)) {
            return NULL;
        }
    }
    PyObject *new = PyDict_Copy(attributes);
    if (new != NULL && PyDict_SetItem(new, wrapped_name, bound)) {
        Py_CLEAR(new);
    }
    return new;
}

/* The cell in which functions of the copy find it. */
static PyObject *
cell_around(PyObject *cells, PyObject *cell, PyObject *new)
{
    PyObject *key = number_of(key_of(cell));
    if (key == NULL) {
        return NULL;
    }
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(cells, key));
    if (found == NULL && !PyErr_Occurred()) {
        found = PyCell_New(new);
        if (found != NULL && PyDict_SetItem(cells, key, found)) {
            Py_CLEAR(found);
        }
    }
    Py_DECREF(key);
    return found;
}

/* Gives a function what else is said of another one: 0, or -1 if it failed. */
static int
describe(PyObject *made, PyObject *wrapper)
{
    PyFunctionObject *new = (PyFunctionObject *)made, *old = (PyFunctionObject *)wrapper;
    Py_XSETREF(new->func_name, Py_XNewRef(old->func_name));
    Py_XSETREF(new->func_qualname, Py_XNewRef(old->func_qualname));
    Py_XSETREF(new->func_module, Py_XNewRef(old->func_module));
    Py_XSETREF(new->func_doc, Py_XNewRef(old->func_doc));
    int failed = old->func_defaults && PyFunction_SetDefaults(made, old->func_defaults);
    PyObject *defaults = failed ? NULL : PyFunction_GetKwDefaults(wrapper);
    if (defaults != NULL && PyDict_Check(defaults) && PyDict_GET_SIZE(defaults)) {
        PyObject *own = PyDict_Copy(defaults);
        failed = own == NULL || PyFunction_SetKwDefaults(made, own);
        Py_XDECREF(own);
    }
    PyObject *notes = NULL;
    if (!failed && (PY_VERSION_HEX >= 0x030E0000 || old->func_annotations != NULL)) {
        notes = PyObject_GetAttr(wrapper, annotations_name); /* Perhaps made now. */
    }
    if (notes != NULL && PyDict_GET_SIZE(notes)) {
        PyObject *own = PyDict_Copy(notes);
        failed = own == NULL || PyObject_SetAttr(made, annotations_name, own);
        Py_XDECREF(own);
    }
    Py_XDECREF(notes);
    return failed || PyErr_Occurred() ? -1 : 0;
}

static PyObject *
wrapper_around(PyObject *wrapper, PyObject *owner, PyObject *bound)
{
    PyObject *globals = PyFunction_GET_GLOBALS(wrapper);
    PyObject *made = PyFunction_New(PyFunction_GET_CODE(wrapper), globals);
    PyObject *cell = PyCell_New(bound);
    PyObject *closure = cell == NULL ? NULL : PyTuple_Pack(2, owner, cell);
    if (made == NULL || closure == NULL || PyFunction_SetClosure(made, closure) ||
        describe(made, wrapper)) {
        Py_CLEAR(made);
    }
    Py_XDECREF(cell);
    Py_XDECREF(closure);
    return made;
}

static PyObject *
rewrap(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!has_core(args, count, 5)) {
        return NULL;
    }
    PyObject *wrapper = args[1], *owner = args[2], *new = args[3], *cells = args[4];
    if (!PyFunction_Check(wrapper) || !PyDict_Check(cells)) {
        return PyErr_Format(PyExc_TypeError, "expected a function and a dict of cells");
    }
    PyObject *attributes = PyObject_GenericGetDict(wrapper, NULL);
    if (attributes == NULL) {
        return NULL;
    }
    PyObject *bound = NULL, *twins = NULL, *cell = NULL, *made = NULL;
    PyObject *method = PyDict_GetItemWithError(attributes, wrapped_name);
    if (method == NULL || !PyMethod_Check(method) ||
        PyMethod_GET_SELF(method) != owner) {
        goto done;
    }
    PyObject *closure = PyFunction_GET_CLOSURE(wrapper);
    if (closure == NULL || PyTuple_GET_SIZE(closure) != 2) {
        PyErr_SetString(PyExc_ValueError, "expected a function that closes over two");
        goto done;
    }
    bound = PyMethod_New(PyMethod_GET_FUNCTION(method), new);
    twins = bound == NULL ? NULL : attributes_around(attributes, method, bound);
    if (twins == NULL) {
        goto done;
    }
    cell = cell_around(cells, PyTuple_GET_ITEM(closure, 0), new);
    made = cell == NULL ? NULL : wrapper_around(wrapper, cell, bound);
    if (made != NULL && !set_attributes(made, twins)) {
        memo_set(((Core *)args[0])->memo, key_of(wrapper), made);
    }
done:
    Py_DECREF(attributes);
    Py_XDECREF(bound);
    Py_XDECREF(twins);
    Py_XDECREF(cell);
    Py_XDECREF(made);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}
