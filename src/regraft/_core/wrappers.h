/* Wrapped methods, as in `wrappers.py`. */

static PyObject *wrapped_name; /* "__wrapped__" */
static PyObject *annotations_name;

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

/* A cell in which functions find a layer, and the one in which their copies find its
   copy; at first both are NULL. */
typedef struct {
    PyObject *old; /* borrowed */
    PyObject *new;
} Around;

/* The copy of a cell in which functions find a layer. */
static PyObject *
cell_around(Around *around, PyObject *cell, PyObject *new)
{
    if (around->old != cell) {
        around->old = cell;
        Py_XSETREF(around->new, PyCell_New(new));
    }
    return around->new;
}

/* Copies a function around a method of a layer: 0, or -1 if it failed. What is not as
   Keras makes it is left to the walk. */
static int
rewrap(Core *core, PyObject *wrapper, PyObject *owner, PyObject *new, Around *around)
{
    PyObject *attributes = PyObject_GenericGetDict(wrapper, NULL);
    if (attributes == NULL) {
        return -1;
    }
    PyObject *bound = NULL, *twins = NULL, *cell = NULL, *made = NULL;
    PyObject *method = PyDict_GetItemWithError(attributes, wrapped_name);
    PyObject *closure = PyFunction_GET_CLOSURE(wrapper);
    if (method == NULL || !PyMethod_Check(method) ||
        PyMethod_GET_SELF(method) != owner || closure == NULL ||
        PyTuple_GET_SIZE(closure) != 2) {
        goto done;
    }
    bound = PyMethod_New(PyMethod_GET_FUNCTION(method), new);
    twins = bound == NULL ? NULL : attributes_around(attributes, method, bound);
    if (twins == NULL) {
        goto done;
    }
    cell = cell_around(around, PyTuple_GET_ITEM(closure, 0), new);
    made = cell == NULL ? NULL : wrapper_around(wrapper, cell, bound);
    if (made != NULL && !set_attributes(made, twins)) {
        memo_set(core->memo, key_of(wrapper), made);
    }
done:
    Py_DECREF(attributes);
    Py_XDECREF(bound);
    Py_XDECREF(twins);
    Py_XDECREF(made);
    return PyErr_Occurred() ? -1 : 0;
}
