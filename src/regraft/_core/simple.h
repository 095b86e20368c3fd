/* What is simple, as in `simple.py`: nothing in it has to be copied. */

#define LARGE (1LL << 32) /* regraft._identity.LARGE */

/* The classes in `regraft._atoms.ATOMS`, in a table by their addresses. A set would ask
   their metaclasses for a hash, which may do anything. */
#define PLACES 256
static PyTypeObject *atoms[PLACES];

static inline size_t
place_of(PyTypeObject *kind)
{
    return ((size_t)kind / sizeof(PyObject)) % PLACES;
}

static inline int
is_atom(PyObject *value)
{
    PyTypeObject *kind = Py_TYPE(value);
    for (size_t i = place_of(kind); atoms[i] != NULL; i = (i + 1) % PLACES) {
        if (atoms[i] == kind) {
            return 1;
        }
    }
    return 0;
}

static inline int
may_be_id(PyObject *value)
{
    if (!PyLong_CheckExact(value)) {
        return 0;
    }
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow > 0 || (overflow == 0 && number > LARGE);
}

/* `regraft._identity.may_hold_ids` of a list of this one value, as far as it is not
   nested: 1 for a tuple or frozenset that has others inside, which is looked at later. */
static int
is_or_holds_id(PyObject *value)
{
    if (PyFrozenSet_CheckExact(value)) {
        return PySet_GET_SIZE(value) > 0;
    }
    if (!PyTuple_CheckExact(value)) {
        return may_be_id(value);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
        PyObject *item = PyTuple_GET_ITEM(value, i);
        if (may_be_id(item) || PyTuple_CheckExact(item) || PyFrozenSet_CheckExact(item)) {
            return 1;
        }
    }
    return 0;
}

/* Whether both models can share a value, which is no id. */
static inline int
is_simple(PyObject *value)
{
    return is_atom(value) && !may_be_id(value);
}

static int
is_simple_tuple(PyObject *items)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        if (!is_simple(PyTuple_GET_ITEM(items, i))) {
            return 0;
        }
    }
    return 1;
}

static int
is_simple_list(PyObject *items)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); i++) {
        if (!is_simple(PyList_GET_ITEM(items, i))) {
            return 0;
        }
    }
    return 1;
}

static int
is_simple_dict(PyObject *items)
{
    Py_ssize_t place = 0;
    PyObject *key, *value;
    while (PyDict_Next(items, &place, &key, &value)) {
        int is_tuple = PyTuple_CheckExact(value);
        if (!is_simple(key) || !(is_tuple ? is_simple_tuple(value) : is_simple(value))) {
            return 0;
        }
    }
    return 1;
}

/* 1, 0, or -1 if it failed. */
static int
is_simple_set(PyObject *items)
{
    if (PySet_GET_SIZE(items) == 0) {
        return 1;
    }
    PyObject *iterator = PySet_Type.tp_iter(items);
    if (iterator == NULL) {
        return -1;
    }
    int simple = 1;
    PyObject *item;
    while (simple && (item = PyIter_Next(iterator)) != NULL) {
        simple = is_simple(item);
        Py_DECREF(item);
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? -1 : simple;
}
