package jinja

import "slices"

// callArgs are the arguments of a call. They are valid during the call only: who
// keeps them copies them.
type callArgs struct {
	pos []Value
	kw  []keyword
}

type keyword struct {
	name  string
	value Value
}

func (a *callArgs) noKeywords(f string) error {
	if len(a.kw) > 0 {
		return errorf("%s() takes no keyword arguments", f)
	}
	return nil
}

// only fails unless there are between min and max positional arguments and no
// others.
func (a *callArgs) only(f string, min, max int) error {
	if err := a.noKeywords(f); err != nil {
		return err
	}
	if len(a.pos) < min || len(a.pos) > max {
		return errorf("%s() takes %d to %d arguments, got %d", f, min, max, len(a.pos))
	}
	return nil
}

// at returns the positional argument i, missing when it was not given.
func (a *callArgs) at(i int) Value {
	if i < len(a.pos) {
		return a.pos[i]
	}
	return missing
}

// bind puts the arguments in the order of the parameters; missing stands for
// those not given, of which the first required ones must be.
func (a *callArgs) bind(f string, params []string, required int) ([]Value, error) {
	if len(a.pos) > len(params) {
		return nil, errorf("%s takes at most %d arguments, got %d", f, len(params), len(a.pos))
	}
	args := a.pos
	for len(args) < len(params) {
		args = append(args, missing)
	}
	for _, k := range a.kw {
		i := slices.Index(params, k.name)
		if i < 0 {
			return nil, errorf("%s has no argument '%s'", f, k.name)
		}
		if args[i] != missing {
			return nil, errorf("%s got several values for argument '%s'", f, k.name)
		}
		args[i] = k.value
	}
	for i := range required {
		if args[i] == missing {
			return nil, errorf("%s is missing the argument '%s'", f, params[i])
		}
	}
	return args, nil
}

// A macro is a macro together with the variables around its definition.
type macro struct {
	def *macroDef
	env *env
}

// emit runs the macro and leaves its text in the output.
func (m *macro) emit(st *state, a callArgs) error {
	if err := st.call(); err != nil {
		return err
	}
	defer func() { st.depth++ }()
	d := m.def
	e := newEnv(d.unit, m.env)
	if err := m.bind(e, a); err != nil {
		return err
	}
	st.enter(e, &d.frame)
	for i, arg := range d.args {
		if e.slots[arg.slot] != missing {
			continue
		}
		j := i - (len(d.args) - len(d.defaults))
		if j < 0 {
			e.slots[arg.slot] = Undefined{hint: "parameter '" + arg.name + "' was not provided"}
			continue
		}
		v, err := d.defaults[j].eval(st, e)
		if err != nil {
			return atLine(err, d.line)
		}
		e.slots[arg.slot] = v
	}
	_, err := st.run(e, d.body)
	return err
}

// bind sets the macro's parameters from the arguments.
func (m *macro) bind(e *env, a callArgs) error {
	d := m.def
	n := min(len(a.pos), len(d.args))
	for i := range n {
		e.slots[d.args[i].slot] = a.pos[i]
	}
	kw := a.kw
	take := func(name string) (Value, bool) {
		for i, k := range kw {
			if k.name == name {
				kw = slices.Delete(slices.Clone(kw), i, i+1)
				return k.value, true
			}
		}
		return nil, false
	}
	for _, arg := range d.args[n:] {
		if v, ok := take(arg.name); ok {
			e.slots[arg.slot] = v
		}
	}
	if d.callerSlot >= 0 {
		v, ok := take("caller")
		if !ok || v == nil {
			v = Undefined{hint: "no caller defined"}
		}
		e.slots[d.callerSlot] = v
	}
	if d.kwargsSlot >= 0 {
		dict := NewDict(len(kw))
		for _, k := range kw {
			dict.Set(k.name, k.value)
		}
		e.slots[d.kwargsSlot] = dict
	} else if len(kw) > 0 {
		return errorf("macro '%s' takes no keyword argument '%s'", d.name, kw[0].name)
	}
	if d.varargsSlot >= 0 {
		e.slots[d.varargsSlot] = &Tuple{Items: slices.Clone(a.pos[n:])}
	} else if len(a.pos) > n {
		return errorf("macro '%s' takes at most %d arguments, got %d", d.name, len(d.args), len(a.pos))
	}
	return nil
}

// attr returns an attribute of the macro; ok is false when there is none.
func (m *macro) attr(name string) (v Value, ok bool) {
	d := m.def
	switch name {
	case "name":
		if d.name == "" {
			return nil, true
		}
		return d.name, true
	case "arguments":
		t := &Tuple{}
		for _, a := range d.args {
			t.Items = append(t.Items, a.name)
		}
		return t, true
	case "catch_kwargs":
		return d.kwargsSlot >= 0, true
	case "catch_varargs":
		return d.varargsSlot >= 0, true
	case "caller":
		return d.callerSlot >= 0 || d.usesCaller, true
	case "explicit_caller":
		return d.explicitCaller, true
	}
	return nil, false
}
