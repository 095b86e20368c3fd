/* What a memo can do in Python: what is asked of a dict. */

static PyObject *
memo_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *others = NULL;
    static char *names[] = {"", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O", names, &others)) {
        return NULL;
    }
    Memo *memo = (Memo *)type->tp_alloc(type, 0);
    if (memo != NULL && others != NULL && memo_add(memo, others)) {
        Py_CLEAR(memo);
    }
    return (PyObject *)memo;
}

static int
memo_traverse(Memo *memo, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(memo));
    for (size_t i = 0; i < memo->used; i++) {
        Py_VISIT(memo->entries[i].value);
    }
    return 0;
}

static void
memo_dealloc(Memo *memo)
{
    PyTypeObject *type = Py_TYPE(memo);
    PyObject_GC_UnTrack(memo);
    memo_clear(memo);
    type->tp_free((PyObject *)memo);
    Py_DECREF(type);
}

static Py_ssize_t
memo_length(Memo *memo)
{
    return (Py_ssize_t)memo->count;
}

static int
memo_contains(Memo *memo, PyObject *number)
{
    Key key;
    int is_key = read_key(number, &key);
    return is_key == 1 ? entry_of(memo, key) != NULL : is_key;
}

static PyObject *
memo_subscript(Memo *memo, PyObject *number)
{
    Key key;
    int is_key = read_key(number, &key);
    PyObject *found = is_key == 1 ? memo_get(memo, key) : NULL;
    if (found == NULL && is_key >= 0) {
        PyErr_SetObject(PyExc_KeyError, number);
    }
    return Py_XNewRef(found);
}

static int
memo_set_item(Memo *memo, PyObject *number, PyObject *value)
{
    Key key;
    int is_key = read_key(number, &key);
    if (is_key == 1 && value != NULL) {
        return memo_set(memo, key, value);
    }
    PyObject *gone = is_key == 1 ? memo_take(memo, key) : NULL;
    if (gone == NULL && is_key >= 0) {
        PyErr_SetObject(value == NULL ? PyExc_KeyError : PyExc_OverflowError, number);
    }
    int failed = gone == NULL ? -1 : 0;
    Py_XDECREF(gone);
    return failed;
}

/* What `get`, `pop` and `setdefault` are given: an address and, perhaps, a default. */
static int
read_arguments(PyObject *const *args, Py_ssize_t count, Key *key)
{
    if (count == 1 || count == 2) {
        return read_key(args[0], key);
    }
    PyErr_Format(PyExc_TypeError, "expected an address and a default");
    return -1;
}

static PyObject *
memo_get_or(Memo *memo, PyObject *const *args, Py_ssize_t count)
{
    Key key;
    int is_key = read_arguments(args, count, &key);
    if (is_key < 0) {
        return NULL;
    }
    PyObject *found = is_key ? memo_get(memo, key) : NULL;
    return Py_NewRef(found != NULL ? found : count == 2 ? args[1] : Py_None);
}

static PyObject *
memo_pop(Memo *memo, PyObject *const *args, Py_ssize_t count)
{
    Key key;
    int is_key = read_arguments(args, count, &key);
    PyObject *found = is_key == 1 ? memo_take(memo, key) : NULL;
    if (found == NULL && is_key >= 0) {
        found = count == 2 ? Py_NewRef(args[1]) : NULL;
        if (found == NULL) {
            PyErr_SetObject(PyExc_KeyError, args[0]);
        }
    }
    return found;
}

static PyObject *
memo_set_default(Memo *memo, PyObject *const *args, Py_ssize_t count)
{
    Key key;
    int is_key = read_arguments(args, count, &key);
    if (is_key < 0) {
        return NULL;
    }
    PyObject *found = is_key ? memo_get(memo, key) : NULL;
    if (found == NULL) {
        found = count == 2 ? args[1] : Py_None;
        if (memo_set_item(memo, args[0], found)) {
            return NULL;
        }
    }
    return Py_NewRef(found);
}

static PyObject *
memo_update(Memo *memo, PyObject *others)
{
    return memo_add(memo, others) ? NULL : Py_NewRef(Py_None);
}

static PyObject *
memo_copy(Memo *memo, PyObject *nothing)
{
    return PyObject_CallOneArg((PyObject *)Memo_Type, (PyObject *)memo);
}

static PyObject *
memo_empty(Memo *memo, PyObject *nothing)
{
    memo_clear(memo);
    return Py_NewRef(Py_None);
}

/* A list of what a function makes of entries. */
static PyObject *
memo_list(Memo *memo, PyObject *(*of)(Key, PyObject *))
{
    PyObject *all = PyList_New(0);
    for (size_t i = 0; all != NULL && i < memo->used; i++) {
        Entry entry = memo->entries[i];
        if (entry.value == NULL) {
            continue;
        }
        Py_INCREF(entry.value); /* The collector may run any code. */
        PyObject *item = of(entry.key, entry.value);
        Py_DECREF(entry.value);
        if (item == NULL || PyList_Append(all, item)) {
            Py_CLEAR(all);
        }
        Py_XDECREF(item);
    }
    return all;
}

static PyObject *
only_key(Key key, PyObject *value)
{
    return number_of(key);
}

static PyObject *
key_and_value(Key key, PyObject *value)
{
    PyObject *number = number_of(key);
    PyObject *pair = number == NULL ? NULL : PyTuple_Pack(2, number, value);
    Py_XDECREF(number);
    return pair;
}

static PyObject *
memo_keys(Memo *memo, PyObject *nothing)
{
    return memo_list(memo, only_key);
}

static PyObject *
memo_items(Memo *memo, PyObject *nothing)
{
    return memo_list(memo, key_and_value);
}

static PyMethodDef memo_methods[] = {
    {"get", METHOD(memo_get_or), METH_FASTCALL, NULL},
    {"pop", METHOD(memo_pop), METH_FASTCALL, NULL},
    {"setdefault", METHOD(memo_set_default), METH_FASTCALL, NULL},
    {"update", METHOD(memo_update), METH_O, NULL},
    {"copy", METHOD(memo_copy), METH_NOARGS, NULL},
    {"clear", METHOD(memo_empty), METH_NOARGS, NULL},
    {"keys", METHOD(memo_keys), METH_NOARGS, NULL},
    {"items", METHOD(memo_items), METH_NOARGS, NULL},
    {NULL},
};

static PyType_Slot memo_slots[] = {
    {Py_tp_new, memo_new},
    {Py_tp_traverse, memo_traverse},
    {Py_tp_clear, memo_clear},
    {Py_tp_dealloc, memo_dealloc},
    {Py_tp_methods, memo_methods},
    {Py_mp_length, memo_length},
    {Py_mp_subscript, memo_subscript},
    {Py_mp_ass_subscript, memo_set_item},
    {Py_sq_contains, memo_contains},
    {0, NULL},
};

static PyType_Spec memo_spec = {
    .name = "regraft._core.native.Memo",
    .basicsize = sizeof(Memo),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = memo_slots,
};
