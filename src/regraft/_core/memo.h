/* What a walk remembers. In Python this is a dict.

   A dict makes a number of each address, and looks for it in three places of the memory;
   to do so was an eighth of a clone. Entries lie here in the order in which they came,
   and a table tells where. */

#include <stdint.h>

typedef size_t Key; /* of an object: `regraft._identity.address` */

typedef struct {
    Key key;
    PyObject *value; /* or NULL: it was taken out */
} Entry;

typedef struct {
    PyObject_HEAD
    Entry *entries;
    uint32_t *places; /* for each slot of the table: 1 + the number of an entry, or 0 */
    size_t slots;     /* a power of two, or 0 */
    int shift;        /* that leaves as many bits of 64 */
    size_t used;      /* entries, those without a value included: at most slots / 2 */
    size_t count;     /* of those with a value */
} Memo;

#define FEWEST_SLOTS 64
#define MOST_SLOTS ((size_t)1 << 31)

static PyTypeObject *Memo_Type;
static int known_by_hash; /* regraft._identity.IS_AUDITED */

static inline Key
key_of(PyObject *obj)
{
    return known_by_hash ? (Key)PyBaseObject_Type.tp_hash(obj) : (Key)obj;
}

static PyObject *
number_of(Key key)
{
    return known_by_hash ? PyLong_FromSsize_t((Py_ssize_t)key) : PyLong_FromSize_t(key);
}

/* Gives the key that a number stands for: 1; 0 for a number that is none; -1 if it is
   no number. */
static int
read_key(PyObject *number, Key *key)
{
    if (!PyLong_Check(number)) {
        PyErr_Format(PyExc_TypeError, "expected an address, received %R", number);
        return -1;
    }
    *key = known_by_hash ? (Key)PyLong_AsSsize_t(number) : PyLong_AsSize_t(number);
    if (*key == (Key)-1 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    return 1;
}


/* --- the table --------------------------------------------------------------------- */

static inline size_t
slot_of(Memo *memo, Key key)
{
    return (size_t)(((uint64_t)key * UINT64_C(0x9E3779B97F4A7C15)) >> memo->shift);
}

/* NULL without an exception if there is none. */
static Entry *
entry_of(Memo *memo, Key key)
{
    if (memo->slots == 0) {
        return NULL;
    }
    size_t slot = slot_of(memo, key);
    for (; memo->places[slot] != 0; slot = (slot + 1) & (memo->slots - 1)) {
        Entry *entry = &memo->entries[memo->places[slot] - 1];
        if (entry->key == key && entry->value != NULL) {
            return entry;
        }
    }
    return NULL;
}

static void
note_place(Memo *memo, size_t number)
{
    size_t slot = slot_of(memo, memo->entries[number].key);
    while (memo->places[slot] != 0) {
        slot = (slot + 1) & (memo->slots - 1);
    }
    memo->places[slot] = (uint32_t)number + 1;
}

/* Makes room for more, and lets go of entries without a value: 0, or -1 if it failed. */
static int
make_room(Memo *memo)
{
    size_t slots = FEWEST_SLOTS;
    while (slots < 4 * (memo->count + 1) && slots < MOST_SLOTS) {
        slots *= 2;
    }
    if (slots / 2 <= memo->count) {
        PyErr_NoMemory();
        return -1;
    }
    uint32_t *places = PyMem_Calloc(slots, sizeof(uint32_t));
    Entry *entries = PyMem_New(Entry, slots / 2);
    if (places == NULL || entries == NULL) {
        PyMem_Free(places);
        PyMem_Free(entries);
        PyErr_NoMemory();
        return -1;
    }
    size_t kept = 0;
    for (size_t i = 0; i < memo->used; i++) {
        if (memo->entries[i].value != NULL) {
            entries[kept++] = memo->entries[i];
        }
    }
    PyMem_Free(memo->places);
    PyMem_Free(memo->entries);
    memo->places = places;
    memo->entries = entries;
    memo->slots = slots;
    memo->used = kept;
    memo->shift = 64;
    for (; slots > 1; slots /= 2) {
        memo->shift--;
    }
    for (size_t i = 0; i < kept; i++) {
        note_place(memo, i);
    }
    return 0;
}

/* Borrowed; NULL without an exception if there is none. */
static inline PyObject *
memo_get(Memo *memo, Key key)
{
    Entry *entry = entry_of(memo, key);
    return entry == NULL ? NULL : entry->value;
}

/* 0, or -1 if it failed. */
static int
memo_set(Memo *memo, Key key, PyObject *value)
{
    Entry *entry = entry_of(memo, key);
    if (entry != NULL) {
        Py_INCREF(value);
        Py_SETREF(entry->value, value);
        return 0;
    }
    if (memo->used == memo->slots / 2 && make_room(memo)) {
        return -1;
    }
    memo->entries[memo->used] = (Entry){key, Py_NewRef(value)};
    note_place(memo, memo->used++);
    memo->count++;
    return 0;
}

/* Takes a value out; NULL without an exception if there is none. */
static PyObject *
memo_take(Memo *memo, Key key)
{
    Entry *entry = entry_of(memo, key);
    if (entry == NULL) {
        return NULL;
    }
    PyObject *value = entry->value;
    entry->value = NULL;
    memo->count--;
    return value;
}

/* Values may run any code when they go. */
static int
memo_clear(Memo *memo)
{
    Entry *entries = memo->entries;
    size_t used = memo->used;
    PyMem_Free(memo->places);
    memo->entries = NULL;
    memo->places = NULL;
    memo->slots = memo->used = memo->count = 0;
    for (size_t i = 0; i < used; i++) {
        Py_XDECREF(entries[i].value);
    }
    PyMem_Free(entries);
    return 0;
}

/* Adds what is in a memo, or in a dict by addresses: 0, or -1 if it failed. */
static int
memo_add(Memo *memo, PyObject *others)
{
    int failed = 0;
    if (Py_IS_TYPE(others, Memo_Type)) {
        Memo *other = (Memo *)others;
        for (size_t i = 0; !failed && i < other->used; i++) {
            Entry entry = other->entries[i];
            failed = entry.value != NULL && memo_set(memo, entry.key, entry.value);
        }
        return failed ? -1 : 0;
    }
    if (!PyDict_Check(others)) {
        PyErr_Format(PyExc_TypeError, "expected a memo or a dict, received %R", others);
        return -1;
    }
    Py_ssize_t place = 0;
    PyObject *number, *value;
    while (!failed && PyDict_Next(others, &place, &number, &value)) {
        Key key;
        int is_key = read_key(number, &key);
        if (is_key == 0) {
            PyErr_SetObject(PyExc_OverflowError, number);
        }
        failed = is_key != 1 || memo_set(memo, key, value);
    }
    return failed ? -1 : 0;
}
