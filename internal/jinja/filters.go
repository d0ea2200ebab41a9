package jinja

// A filterDef is a filter, as in "x|trim".
type filterDef struct {
	// params are the names of the arguments. A call to fn has one value for each,
	// missing for those not given; the slice is valid during the call only.
	params   []string
	required int
	fn       func(st *state, v Value, a []Value) (Value, error)
	// raw, instead of fn, takes any arguments.
	raw func(st *state, v Value, a callArgs) (Value, error)
}

func (d *filterDef) call(st *state, name string, v Value, a callArgs) (Value, error) {
	if err := st.step(1); err != nil {
		return nil, err
	}
	if d.raw != nil {
		return d.raw(st, v, a)
	}
	if len(d.params) == 0 && len(a.pos) == 0 && len(a.kw) == 0 {
		return d.fn(st, v, nil)
	}
	args, err := a.bind("filter '"+name+"'", d.params, d.required)
	if err != nil {
		return nil, err
	}
	return d.fn(st, v, args)
}

// filters are the filters of Jinja2 in the environment of transformers.
var filters = map[string]*filterDef{
	// Values.
	"default": defaultFilter,
	"d":       defaultFilter,
	"string":  {fn: func(st *state, v Value, _ []Value) (Value, error) { return softStr(st, v) }},
	"int":     {params: []string{"default", "base"}, fn: filterInt},
	"float":   {params: []string{"default"}, fn: filterFloat},
	"abs":     {fn: filterAbs},
	"round":   {params: []string{"precision", "method"}, fn: filterRound},
	"length":  lengthFilter,
	"count":   lengthFilter,
	"tojson":  {params: []string{"ensure_ascii", "indent", "separators", "sort_keys"}, fn: filterToJSON},
	"attr":    {params: []string{"name"}, required: 1, fn: filterAttr},

	// Text.
	"upper":          text(toUpper),
	"lower":          text(toLower),
	"capitalize":     text(capitalize),
	"title":          {fn: filterTitle},
	"trim":           {params: []string{"chars"}, fn: filterTrim},
	"replace":        {params: []string{"old", "new", "count"}, required: 2, fn: filterReplace},
	"format":         {raw: filterFormat},
	"indent":         {params: []string{"width", "first", "blank"}, fn: filterIndent},
	"center":         {params: []string{"width"}, fn: filterCenter},
	"truncate":       {params: []string{"length", "killwords", "end", "leeway"}, fn: filterTruncate},
	"wordcount":      {fn: filterWordCount},
	"safe":           {fn: filterSafe},
	"e":              escapeFilter,
	"escape":         escapeFilter,
	"forceescape":    {fn: filterForceEscape},
	"urlencode":      {fn: filterURLEncode},
	"xmlattr":        {params: []string{"autospace"}, fn: filterXMLAttr},
	"filesizeformat": {params: []string{"binary"}, fn: filterFileSize},

	// Sequences.
	"list":       {fn: filterList},
	"items":      {fn: filterItems},
	"first":      {fn: filterFirst},
	"last":       {fn: filterLast},
	"join":       {params: []string{"d", "attribute"}, fn: filterJoin},
	"reverse":    {fn: filterReverse},
	"sort":       {params: []string{"reverse", "case_sensitive", "attribute"}, fn: filterSort},
	"dictsort":   {params: []string{"case_sensitive", "by", "reverse"}, fn: filterDictSort},
	"unique":     {params: []string{"case_sensitive", "attribute"}, fn: filterUnique},
	"min":        {params: []string{"case_sensitive", "attribute"}, fn: extreme(cmpLt)},
	"max":        {params: []string{"case_sensitive", "attribute"}, fn: extreme(cmpGt)},
	"sum":        {params: []string{"attribute", "start"}, fn: filterSum},
	"groupby":    {params: []string{"attribute", "default", "case_sensitive"}, required: 1, fn: filterGroupBy},
	"batch":      {params: []string{"linecount", "fill_with"}, required: 1, fn: filterBatch},
	"slice":      {params: []string{"slices", "fill_with"}, required: 1, fn: filterSlice},
	"map":        {raw: filterMap},
	"select":     {raw: selection(true, false)},
	"reject":     {raw: selection(false, false)},
	"selectattr": {raw: selection(true, true)},
	"rejectattr": {raw: selection(false, true)},
}

// unsupportedFilters are those that Jinja2 has and this package does not.
var unsupportedFilters = map[string]bool{
	"pprint": true, "random": true, "striptags": true, "urlize": true, "wordwrap": true,
}

var (
	defaultFilter = &filterDef{params: []string{"default_value", "boolean"}, fn: filterDefault}
	lengthFilter  = &filterDef{fn: func(st *state, v Value, _ []Value) (Value, error) {
		n, err := length(st, v)
		return int64(n), err
	}}
	escapeFilter = &filterDef{fn: func(st *state, v Value, _ []Value) (Value, error) {
		s, err := escaped(st, v)
		return markup(s), err
	}}
)

// arg returns an argument or, when it was not given, its default.
func arg(v, def Value) Value {
	if v == missing {
		return def
	}
	return v
}

// flag returns the truth of an argument; not given is false.
func flag(st *state, v Value) (bool, error) {
	if v == missing {
		return false, nil
	}
	return truth(st, v)
}

func filterDefault(st *state, v Value, a []Value) (Value, error) {
	if !isUndefined(v) {
		boolean, err := flag(st, a[1])
		if err != nil || !boolean {
			return v, err
		}
		if ok, err := truth(st, v); err != nil || ok {
			return v, err
		}
	}
	return arg(a[0], ""), nil
}

// filterAttr is v|attr(name): the attribute, never the item.
func filterAttr(st *state, v Value, a []Value) (Value, error) {
	name, ok := asString(a[0])
	if !ok {
		return nil, errorf("filter 'attr' expects a string, not %s", typeName(a[0]))
	}
	x, ok, err := attribute(st, v, name)
	if err != nil {
		return nil, err
	}
	if !ok || name != "" && name[0] == '_' {
		return undefinedAttr(v, name), nil
	}
	return x, nil
}

func filterToJSON(st *state, v Value, a []Value) (Value, error) {
	var o jsonOptions
	var err error
	if o.ascii, err = flag(st, a[0]); err != nil {
		return nil, err
	}
	if o.sortKeys, err = flag(st, a[3]); err != nil {
		return nil, err
	}
	// A string is written without looking at the indentation.
	if in := arg(a[1], nil); in != nil && !isString(v) {
		o.pretty = true
		if s, ok := asString(in); ok {
			o.indent = s
		} else {
			n, err := asCount(in)
			if err != nil {
				return nil, err
			}
			if o.indent, err = st.repeat(" ", n); err != nil {
				return nil, err
			}
		}
	}
	o.setSeparators()
	if sep := arg(a[2], nil); sep != nil {
		if o.itemSep, o.keySep, err = separators(st, sep); err != nil {
			return nil, err
		}
	}
	w := jsonWriter{st: st, o: o}
	if err := w.value(v, 0); err != nil {
		return nil, err
	}
	return string(w.dst), st.alloc(len(w.dst))
}

func separators(st *state, v Value) (item, key string, err error) {
	two, err := st.unpack(v, 2)
	if err != nil {
		return "", "", err
	}
	item, iok := asString(two[0])
	key, kok := asString(two[1])
	if !iok || !kok {
		return "", "", errorf("filter 'tojson': separators must be strings")
	}
	return item, key, nil
}
