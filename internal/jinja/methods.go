package jinja

// dictMethods are the methods of dict that do not change it.
var dictMethods = map[string]method{
	"items":  viewMethod("items", viewItems),
	"keys":   viewMethod("keys", viewKeys),
	"values": viewMethod("values", viewValues),
	"get": func(st *state, v Value, a callArgs) (Value, error) {
		if err := a.only("get", 1, 2); err != nil {
			return nil, err
		}
		if err := st.scanKey(a.pos[0]); err != nil {
			return nil, err
		}
		x, ok, err := v.(*Dict).lookup(a.pos[0])
		if err != nil || ok {
			return x, err
		}
		if len(a.pos) > 1 {
			return a.pos[1], nil
		}
		return nil, nil
	},
	"copy": func(st *state, v Value, a callArgs) (Value, error) {
		if err := a.only("copy", 0, 0); err != nil {
			return nil, err
		}
		d := v.(*Dict)
		if err := st.allocItems(4 * d.Len()); err != nil {
			return nil, err
		}
		return d.clone(), nil
	},
	"fromkeys": func(st *state, _ Value, a callArgs) (Value, error) { return dictFromKeys(st, a) },
}

var dictMutators = map[string]bool{"clear": true, "pop": true, "popitem": true, "setdefault": true, "update": true}

func viewMethod(name string, kind viewKind) method {
	return func(_ *state, v Value, a callArgs) (Value, error) {
		if err := a.only(name, 0, 0); err != nil {
			return nil, err
		}
		return &dictView{v.(*Dict), kind}, nil
	}
}

func dictFromKeys(st *state, a callArgs) (Value, error) {
	if err := a.only("fromkeys", 1, 2); err != nil {
		return nil, err
	}
	keys, err := collect(st, a.pos[0])
	if err != nil {
		return nil, err
	}
	if err := st.allocItems(4 * len(keys)); err != nil {
		return nil, err
	}
	var v Value
	if len(a.pos) > 1 {
		v = a.pos[1]
	}
	d := NewDict(len(keys))
	for _, k := range keys {
		if err := st.scanKey(k); err != nil {
			return nil, err
		}
		if err := d.insert(k, v); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// listMethods are the methods of list that do not change it.
var listMethods = map[string]method{
	"index": seqIndex,
	"count": seqCount,
	"copy": func(_ *state, v Value, a callArgs) (Value, error) {
		return &List{Items: v.(*List).Items}, a.only("copy", 0, 0)
	},
}

var listMutators = map[string]bool{
	"append": true, "clear": true, "pop": true, "reverse": true, "insert": true, "sort": true, "extend": true, "remove": true,
}

var tupleMethods = map[string]method{"index": seqIndex, "count": seqCount}

func seqIndex(st *state, v Value, a callArgs) (Value, error) {
	if err := a.only("index", 1, 3); err != nil {
		return nil, err
	}
	items, _ := sliceOf(v)
	var b sliceBounds
	for i, x := range a.pos[1:] {
		if err := b.set(i, x); err != nil {
			return nil, err
		}
	}
	r, err := b.indices(len(items))
	if err != nil {
		return nil, err
	}
	for i := r.start; i < r.stop; i++ {
		if err := st.step(1); err != nil {
			return nil, err
		}
		same, err := same(st, items[i], a.pos[0])
		if err != nil {
			return nil, err
		}
		if same {
			return i, nil
		}
	}
	return nil, errorf("index(): the value is not in the list")
}

func seqCount(st *state, v Value, a callArgs) (Value, error) {
	if err := a.only("count", 1, 1); err != nil {
		return nil, err
	}
	items, _ := sliceOf(v)
	n := int64(0)
	for _, x := range items {
		if err := st.step(1); err != nil {
			return nil, err
		}
		same, err := same(st, x, a.pos[0])
		if err != nil {
			return nil, err
		}
		if same {
			n++
		}
	}
	return n, nil
}

// attr returns an attribute of a cycler; ok is false when there is none.
func (c *cycler) attr(name string) (v Value, ok bool) {
	switch name {
	case "current":
		return c.items[c.pos], true
	case "items":
		return &Tuple{Items: c.items}, true
	case "pos":
		return int64(c.pos), true
	case "next":
		return &function{name: name, call: func(_ *state, a callArgs) (Value, error) {
			v := c.items[c.pos]
			c.pos = (c.pos + 1) % len(c.items)
			return v, a.only(name, 0, 0)
		}}, true
	case "reset":
		return &function{name: name, call: func(_ *state, a callArgs) (Value, error) {
			c.pos = 0
			return nil, a.only(name, 0, 0)
		}}, true
	}
	return nil, false
}
