/* The heart of a walk, in C.

   Each header goes with the module in Python that does the same; what functions and
   arguments mean is said there. Both do the same in the same order, for seeds are drawn
   in the order in which layers and streams are met. Here as there nothing recurses:
   what is not simple is put off.

   A function that returns NULL, or -1, has failed and set an exception, unless a comment
   says otherwise; what answers a question returns 1 or 0. References that are returned
   are new, unless a comment calls them borrowed. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define METHOD(function) (PyCFunction)(void (*)(void))(function)

#include "simple.h"
#include "memo.h"
#include "mapping.h"
#include "core.h"
#include "makers.h"
#include "copying.h"
#include "wrappers.h"
#include "layers.h"
#include "calls.h"

/* What this was compiled from, see `_source.py`. */
#ifndef SOURCE_DIGEST
#define SOURCE_DIGEST ""
#endif


/* --- Core -------------------------------------------------------------------------- */

static PyObject *
core_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    Core *core = (Core *)type->tp_alloc(type, 0);
    if (core == NULL) {
        return NULL;
    }
    core->memo = (Memo *)PyObject_CallNoArgs((PyObject *)Memo_Type);
    core->makers = (Memo *)PyObject_CallNoArgs((PyObject *)Memo_Type);
    core->kinds = PyList_New(0);
    core->pending = PyList_New(0);
    core->with_ids = PyList_New(0);
    core->node_lists = PyList_New(0);
    core->choose = Py_NewRef(Py_None);
    core->keep = Py_NewRef(Py_None);
    if (core->memo == NULL || core->makers == NULL || core->kinds == NULL ||
        core->pending == NULL || core->with_ids == NULL || core->node_lists == NULL) {
        Py_CLEAR(core);
    }
    return (PyObject *)core;
}

static int
core_init(Core *core, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"choose", "keep", NULL};
    PyObject *choose, *keep = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O", names, &choose, &keep)) {
        return -1;
    }
    Py_SETREF(core->choose, Py_NewRef(choose));
    Py_SETREF(core->keep, Py_NewRef(keep));
    return 0;
}

static int
core_traverse(Core *core, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(core));
    Py_VISIT(core->memo);
    Py_VISIT(core->makers);
    Py_VISIT(core->kinds);
    Py_VISIT(core->pending);
    Py_VISIT(core->with_ids);
    Py_VISIT(core->node_lists);
    Py_VISIT(core->choose);
    Py_VISIT(core->keep);
    return 0;
}

/* Memos, dicts and lists break cycles themselves, and are there as long as a walk can be
   asked. */
static int
core_clear(Core *core)
{
    Py_SETREF(core->choose, Py_NewRef(Py_None));
    Py_SETREF(core->keep, Py_NewRef(Py_None));
    return 0;
}

static void
core_dealloc(Core *core)
{
    PyTypeObject *type = Py_TYPE(core);
    PyObject_GC_UnTrack(core);
    Py_XDECREF(core->memo);
    Py_XDECREF(core->makers);
    Py_XDECREF(core->kinds);
    Py_XDECREF(core->pending);
    Py_XDECREF(core->with_ids);
    Py_XDECREF(core->node_lists);
    Py_XDECREF(core->choose);
    Py_XDECREF(core->keep);
    type->tp_free((PyObject *)core);
    Py_DECREF(type);
}

static PyMemberDef core_members[] = {
    {"memo", T_OBJECT_EX, offsetof(Core, memo), READONLY, NULL},
    {"kinds", T_OBJECT_EX, offsetof(Core, kinds), READONLY, NULL},
    {"pending", T_OBJECT_EX, offsetof(Core, pending), READONLY, NULL},
    {"with_ids", T_OBJECT_EX, offsetof(Core, with_ids), READONLY, NULL},
    {"node_lists", T_OBJECT_EX, offsetof(Core, node_lists), READONLY, NULL},
    {"keep", T_OBJECT_EX, offsetof(Core, keep), READONLY, NULL},
    {NULL},
};

static PyMethodDef core_methods[] = {
    {"maker", METHOD(maker_of), METH_O, NULL},
    {"copy_of", METHOD(copy_of), METH_O, NULL},
    {"translate", METHOD(translate_all), METH_O, NULL},
    {"copy_items", METHOD(copy_items), METH_FASTCALL, NULL},
    {"copies_of", METHOD(copies_of), METH_O, NULL},
    {"settle", METHOD(settle_all), METH_O, NULL},
    {"remember", METHOD(remember), METH_FASTCALL, NULL},
    {"known", METHOD(known), METH_O, NULL},
    {"stand_in", METHOD(stand_in), METH_O, NULL},
    {"known_items", METHOD(known_items), METH_O, NULL},
    {"fill_later", METHOD(fill_later), METH_FASTCALL, NULL},
    {NULL},
};

static PyType_Slot core_slots[] = {
    {Py_tp_new, core_new},
    {Py_tp_init, core_init},
    {Py_tp_traverse, core_traverse},
    {Py_tp_clear, core_clear},
    {Py_tp_dealloc, core_dealloc},
    {Py_tp_members, core_members},
    {Py_tp_methods, core_methods},
    {0, NULL},
};

static PyType_Spec core_spec = {
    .name = "regraft._core.native.Core",
    .basicsize = sizeof(Core),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = core_slots,
};


/* --- Maker ------------------------------------------------------------------------- */

static int
maker_traverse(Maker *maker, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(maker));
    Py_VISIT(maker->fill);
    Py_VISIT(maker->noted_in);
    Py_VISIT(maker->without);
    Py_VISIT(maker->stands_alone);
    Py_VISIT(maker->known);
    return 0;
}

static void
maker_dealloc(Maker *maker)
{
    PyTypeObject *type = Py_TYPE(maker);
    PyObject_GC_UnTrack(maker);
    Py_XDECREF(maker->fill);
    Py_XDECREF(maker->noted_in);
    Py_XDECREF(maker->without);
    Py_XDECREF(maker->stands_alone);
    Py_XDECREF(maker->known);
    PyObject_GC_Del(maker);
    Py_DECREF(type);
}

static PyMemberDef maker_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Maker, vectorcall), READONLY, NULL},
    {NULL},
};

static PyType_Slot maker_slots[] = {
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, maker_traverse},
    {Py_tp_dealloc, maker_dealloc},
    {Py_tp_members, maker_members},
    {0, NULL},
};

static PyType_Spec maker_spec = {
    .name = "regraft._core.native.Maker",
    .basicsize = sizeof(Maker),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = maker_slots,
};


/* --- the module -------------------------------------------------------------------- */

static PyMethodDef fill_methods[] = {
    {"fill_list", METHOD(fill_list), METH_FASTCALL, NULL},
    {"fill_names", METHOD(fill_names), METH_FASTCALL, NULL},
};

static PyMethodDef functions[] = {
    {"container_maker", METHOD(container_maker), METH_VARARGS | METH_KEYWORDS, NULL},
    {"instance_maker", METHOD(instance_maker), METH_VARARGS | METH_KEYWORDS, NULL},
    {"copy_stores", METHOD(copy_stores), METH_FASTCALL, NULL},
    {"empty_like", METHOD(empty_like), METH_FASTCALL, NULL},
    {"fill_layer", METHOD(fill_layer), METH_FASTCALL, NULL},
    {"fill_owned", METHOD(fill_owned), METH_FASTCALL, NULL},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "regraft._core.native",
    .m_doc = "The heart of a walk, in C.",
    .m_size = -1,
    .m_methods = functions,
};

/* An attribute of a module of regraft. */
static PyObject *
from_regraft(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *found = module == NULL ? NULL : PyObject_GetAttrString(module, name);
    Py_XDECREF(module);
    return found;
}

static int
learn_atoms(void)
{
    PyObject *all = from_regraft("regraft._atoms", "ATOMS");
    PyObject *iterator = all == NULL ? NULL : PyObject_GetIter(all);
    Py_XDECREF(all);
    if (iterator == NULL) {
        return -1;
    }
    PyObject *kind;
    while ((kind = PyIter_Next(iterator)) != NULL) {
        size_t i = place_of((PyTypeObject *)kind);
        while (atoms[i] != NULL && atoms[i] != (PyTypeObject *)kind) {
            i = (i + 1) % PLACES;
        }
        atoms[i] = (PyTypeObject *)kind; /* Kept for good. */
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? -1 : 0;
}

static void
learn_names(void)
{
    wrapped_name = PyUnicode_InternFromString("__wrapped__");
    annotations_name = PyUnicode_InternFromString("__annotations__");
}

static int
prepare(void)
{
    PyObject *is_audited = from_regraft("regraft._identity", "IS_AUDITED");
    if (is_audited == NULL) {
        return -1;
    }
    known_by_hash = is_audited == Py_True;
    Py_DECREF(is_audited);
    bases[A_LIST] = &PyList_Type;
    bases[A_DICT] = &PyDict_Type;
    bases[AN_ORDERED_DICT] = &PyODict_Type;
    bases[A_SET] = &PySet_Type;
    bases[AN_INSTANCE] = &PyBaseObject_Type;
    for (size_t i = 0; i < Py_ARRAY_LENGTH(bases); i++) {
        constructors[i] = PyObject_GetAttrString((PyObject *)bases[i], "__new__");
    }
    set_update = PyObject_GetAttrString((PyObject *)&PySet_Type, "update");
    no_arguments = PyTuple_New(0);
    dict_name = PyUnicode_InternFromString("__dict__");
    learn_names();
    fills[A_LIST] = PyCFunction_New(&fill_methods[0], NULL);
    fills[A_DICT] = PyCFunction_New(&fill_methods[1], NULL);
    Memo_Type = (PyTypeObject *)PyType_FromSpec(&memo_spec);
    Core_Type = (PyTypeObject *)PyType_FromSpec(&core_spec);
    Maker_Type = (PyTypeObject *)PyType_FromSpec(&maker_spec);
    return PyErr_Occurred() ? -1 : learn_atoms();
}

PyMODINIT_FUNC
PyInit_native(void)
{
    PyObject *module = prepare() < 0 ? NULL : PyModule_Create(&definition);
    if (module != NULL &&
        (PyModule_AddObjectRef(module, "Core", (PyObject *)Core_Type) < 0 ||
         PyModule_AddStringConstant(module, "SOURCE", SOURCE_DIGEST) < 0)) {
        Py_CLEAR(module);
    }
    return module;
}
