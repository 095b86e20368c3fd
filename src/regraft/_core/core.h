/* What a walk knows, as in `core.py`; its methods are in `copying.h`. */

typedef struct {
    PyObject_HEAD
    Memo *memo;
    Memo *makers; /* by the addresses of their classes, which are in `kinds` */
    PyObject *kinds;
    PyObject *pending;
    PyObject *with_ids;
    PyObject *node_lists;
    PyObject *choose;
    PyObject *keep;
    int depth; /* how many makers in Python are at work */
} Core;

#define DEEPEST 5000 /* of them, each of which takes less than 1 kB */

static PyTypeObject *Core_Type;

/* Borrowed; NULL without an exception if the object was not met. */
static inline PyObject *
find(Core *core, PyObject *obj)
{
    return memo_get(core->memo, key_of(obj));
}

static int
put_off(Core *core, PyObject *fill, PyObject *obj, PyObject *new)
{
    PyObject *entry = PyTuple_Pack(3, fill, obj, new);
    if (entry == NULL) {
        return -1;
    }
    int failed = PyList_Append(core->pending, entry);
    Py_DECREF(entry);
    return failed;
}

/* Calls `function(walk, obj)`. */
static PyObject *
call(PyObject *function, Core *core, PyObject *obj)
{
    PyObject *arguments[] = {(PyObject *)core, obj};
    return PyObject_Vectorcall(function, arguments, 2, NULL);
}

/* Takes an answer, which may be NULL: 1, 0, or -1 if it failed. */
static int
is_true(PyObject *answer)
{
    if (answer == NULL) {
        return -1;
    }
    int yes = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return yes;
}

static int settle(Core *core, PyObject *state);
