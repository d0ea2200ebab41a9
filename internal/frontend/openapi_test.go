package frontend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"math/big"
	"mime"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/nvext"
)

type object = map[string]any

// description is the parsed document.
type description struct{ root object }

func parseDescription(t *testing.T) description {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(openapiJSON))
	dec.UseNumber()
	var d description
	if err := dec.Decode(&d.root); err != nil {
		t.Fatalf("openapi.json: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Fatalf("openapi.json: text after the document: %v", err)
	}
	return d
}

// at returns what is at a JSON pointer, or nil.
func (d description) at(pointer string) any {
	var v any = d.root
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		o, ok := v.(object)
		if !ok {
			return nil
		}
		v = o[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return v
}

func (d description) object(t *testing.T, pointer string) object {
	t.Helper()
	o, ok := d.at(pointer).(object)
	if !ok {
		t.Fatalf("%s: not an object in openapi.json", pointer)
	}
	return o
}

// follow returns what a reference stands for; other values are returned as they
// are.
func (d description) follow(v any) object {
	o, _ := v.(object)
	for {
		ref, ok := o["$ref"].(string)
		if !ok {
			return o
		}
		o, _ = d.at(strings.TrimPrefix(ref, "#")).(object)
	}
}

func (d description) schema(name string) object {
	return object{"$ref": "#/components/schemas/" + name}
}

// operations calls f for each method of each path.
func (d description) operations(f func(method, path string, op object)) {
	for path, item := range d.root["paths"].(object) {
		for method, op := range item.(object) {
			f(method, path, op.(object))
		}
	}
}

// check returns what is wrong with v as an instance of schema. It is stricter
// than the standard: where a schema lists properties, v must have no others, so
// that a misspelt or undescribed member is found. A keyword it does not know is
// an error too.
func (d description) check(schema any, v any, path string) (problems []string) {
	bad := func(format string, args ...any) {
		problems = append(problems, path+": "+fmt.Sprintf(format, args...))
	}
	s, ok := schema.(object)
	if !ok {
		bad("schema is not an object")
		return problems
	}
	number := func(keyword string) *big.Rat {
		r, _ := new(big.Rat).SetString(s[keyword].(json.Number).String())
		return r
	}
	value, isNumber := v.(json.Number)
	rat := new(big.Rat)
	if isNumber {
		rat, _ = rat.SetString(value.String())
	}
	str, isString := v.(string)
	list, isList := v.([]any)
	members, isObject := v.(object)
	for _, keyword := range slices.Sorted(maps.Keys(s)) {
		arg := s[keyword]
		switch keyword {
		case "description", "examples", "default", "deprecated", "format":
		case "$ref":
			problems = append(problems, d.check(d.at(strings.TrimPrefix(arg.(string), "#")), v, path)...)
		case "type":
			if !isType(arg, v) {
				bad("got %s, want %v", show(v), arg)
			}
		case "enum":
			if !slices.ContainsFunc(arg.([]any), func(e any) bool { return reflect.DeepEqual(e, v) }) {
				bad("got %s, want one of %s", show(v), show(arg))
			}
		case "const":
			if !reflect.DeepEqual(arg, v) {
				bad("got %s, want %s", show(v), show(arg))
			}
		case "minimum":
			if isNumber && rat.Cmp(number(keyword)) < 0 {
				bad("%s is below the minimum %v", value, arg)
			}
		case "maximum":
			if isNumber && rat.Cmp(number(keyword)) > 0 {
				bad("%s is above the maximum %v", value, arg)
			}
		case "minLength":
			if isString && big.NewRat(int64(utf8.RuneCountInString(str)), 1).Cmp(number(keyword)) < 0 {
				bad("%q is shorter than %v", str, arg)
			}
		case "maxLength":
			if isString && big.NewRat(int64(utf8.RuneCountInString(str)), 1).Cmp(number(keyword)) > 0 {
				bad("%q is longer than %v", str, arg)
			}
		case "minItems":
			if isList && big.NewRat(int64(len(list)), 1).Cmp(number(keyword)) < 0 {
				bad("%d items are fewer than %v", len(list), arg)
			}
		case "items":
			for i, item := range list {
				problems = append(problems, d.check(arg, item, path+"["+strconv.Itoa(i)+"]")...)
			}
		case "required":
			for _, name := range arg.([]any) {
				if _, ok := members[name.(string)]; isObject && !ok {
					bad("member %q is missing", name)
				}
			}
		case "properties":
			for name, m := range members {
				if sub, ok := arg.(object)[name]; ok {
					problems = append(problems, d.check(sub, m, path+"."+name)...)
				} else {
					bad("member %q is not described", name)
				}
			}
		case "additionalProperties":
			if sub, ok := arg.(object); ok && s["properties"] == nil {
				for name, m := range members {
					problems = append(problems, d.check(sub, m, path+"."+name)...)
				}
			}
		case "anyOf", "oneOf":
			matches := 0
			var why []string
			for _, sub := range arg.([]any) {
				if p := d.check(sub, v, path); len(p) > 0 {
					why = append(why, p...)
				} else {
					matches++
				}
			}
			if matches == 0 || keyword == "oneOf" && matches > 1 {
				bad("%d alternatives of %s fit: %s", matches, keyword, strings.Join(why, "; "))
			}
		default:
			bad("schema keyword %q is unknown to this test", keyword)
		}
	}
	return problems
}

func isType(want, v any) bool {
	if all, ok := want.([]any); ok {
		return slices.ContainsFunc(all, func(w any) bool { return isType(w, v) })
	}
	switch v := v.(type) {
	case nil:
		return want == "null"
	case bool:
		return want == "boolean"
	case string:
		return want == "string"
	case []any:
		return want == "array"
	case object:
		return want == "object"
	case json.Number:
		r, ok := new(big.Rat).SetString(v.String())
		return ok && (want == "number" || want == "integer" && r.IsInt())
	}
	return false
}

func show(v any) string {
	b, _ := json.Marshal(v)
	if len(b) > 200 {
		return string(b[:200]) + "…"
	}
	return string(b)
}

// checkJSON checks raw JSON.
func (d description) checkJSON(t *testing.T, schema any, raw []byte) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Errorf("%s: %v", raw, err)
		return
	}
	for _, p := range d.check(schema, v, "$") {
		t.Errorf("%s\nin %s", p, raw)
	}
}

func TestOpenAPIReferences(t *testing.T) {
	d := parseDescription(t)
	if v := d.root["openapi"]; v != "3.1.0" {
		t.Errorf("openapi = %v, want 3.1.0", v)
	}
	used := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case object:
			if ref, ok := v["$ref"].(string); ok {
				pointer, local := strings.CutPrefix(ref, "#")
				if !local || d.at(pointer) == nil {
					t.Errorf("%s: %q leads nowhere", path, ref)
				}
				used[pointer] = true
			}
			for k, m := range v {
				walk(path+"/"+k, m)
			}
		case []any:
			for i, e := range v {
				walk(path+"/"+strconv.Itoa(i), e)
			}
		}
	}
	walk("", d.root)
	// A chunk is only spoken of: the schema of a stream is a string.
	used["/components/schemas/ChatChunk"] = true
	for kind, all := range d.object(t, "/components") {
		for name := range all.(object) {
			if p := "/components/" + kind + "/" + name; kind != "securitySchemes" && !used[p] {
				t.Errorf("%s is used nowhere", p)
			}
		}
	}
}

func newBareServer(t *testing.T, keys ...Key) *Server {
	t.Helper()
	r := router.New(router.Config{})
	t.Cleanup(func() { r.Close() })
	return New(Config{Router: r, Keys: keys, Version: "test", Engines: someEngines, Registry: new(fakeRegistry)})
}

func TestOpenAPIRoutes(t *testing.T) {
	d := parseDescription(t)
	s := newBareServer(t)
	routes := maps.Clone(s.routes)
	for _, path := range []string{modelPrefix + "{id}", enginePrefix + "{id}", enginePrefix + "{id}" + heartbeat} {
		routes[path], _ = s.find(path)
	}
	got, want := map[string]access{}, map[string]access{}
	for path, rt := range routes {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
			if rt.handler(method) != nil {
				want[strings.ToLower(method)+" "+path] = rt.access
			}
		}
	}
	ids := map[any]bool{}
	d.operations(func(method, path string, op object) {
		who := api
		if s, ok := op["security"].([]any); ok && len(s) == 0 {
			who = open
		} else if reflect.DeepEqual(op["tags"], []any{"Operation"}) {
			who = admin
		}
		got[method+" "+path] = who
		if id := op["operationId"]; id == nil || ids[id] {
			t.Errorf("%s %s: operationId %v is missing or taken", method, path, id)
		} else {
			ids[id] = true
		}
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes and who may use them: 0 everyone, 1 any key, 2 admin keys (-server +openapi.json):\n%s", diff)
	}
}

// The schemas of nvext and the types they describe.
var nvextSchemas = map[string]any{
	"NvExt":                 nvext.NvExt{},
	"AgentHints":            nvext.AgentHints{},
	"CacheControl":          nvext.CacheControl{},
	"SessionControl":        nvext.SessionControl{},
	"MetadataUpload":        nvext.MetadataUpload{},
	"RoutingConstraints":    nvext.RoutingConstraints{},
	"RouterTargets":         nvext.RouterTargets{},
	"NvExtResponse":         nvext.Response{},
	"WorkerIDs":             nvext.WorkerIDs{},
	"Timing":                nvext.Timing{},
	"Routing":               nvext.Routing{},
	"RoutingExpected":       nvext.Expected{},
	"RoutingInferred":       nvext.Inferred{},
	"RoutingPool":           nvext.Pool{},
	"RoutingCost":           nvext.CostParams{},
	"RoutingPolicyDecision": nvext.PolicyDecision{},
	"RoutingRank":           nvext.Rank{},
	"Candidate":             nvext.Candidate{},
	"Term":                  nvext.Term{},
}

func TestOpenAPINvExtFields(t *testing.T) {
	d := parseDescription(t)
	for name, v := range nvextSchemas {
		t.Run(name, func(t *testing.T) {
			var want, required []string
			for field := range reflect.TypeOf(v).Fields() {
				tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
				if tag == "-" {
					continue
				}
				want = append(want, tag)
				if !strings.Contains(options, "omitzero") && tag != "timeout" { // filled in when absent
					required = append(required, tag)
				}
			}
			schema := d.object(t, "/components/schemas/"+name)
			var marked []string
			for _, r := range asList(schema["required"]) {
				marked = append(marked, r.(string))
			}
			properties := schema["properties"].(object)
			sortStrings := cmp.Transformer("sort", func(s []string) []string { return slices.Sorted(slices.Values(s)) })
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(properties)), sortStrings); diff != "" {
				t.Errorf("members (-nvext +openapi.json):\n%s", diff)
			}
			if diff := cmp.Diff(required, marked, sortStrings); diff != "" {
				t.Errorf("required members (-nvext +openapi.json):\n%s", diff)
			}
			for key, p := range properties {
				if d.follow(p)["description"] == nil && name != "Term" {
					t.Errorf("%s has no description", key)
				}
			}
			filled := reflect.New(reflect.TypeOf(v)).Elem()
			fill(filled)
			raw, err := json.Marshal(filled.Interface())
			if err != nil {
				t.Fatal(err)
			}
			d.checkJSON(t, d.schema(name), raw)
		})
	}
}

func asList(v any) []any {
	l, _ := v.([]any)
	return l
}

// fill sets every field below v to something that is not zero.
func fill(v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *json.RawMessage:
		*x = json.RawMessage(`{"a":1}`)
		return
	case *nvext.SessionAction:
		*x = nvext.SessionOpen
		return
	case *nvext.Reason:
		*x = nvext.ReasonCost
		return
	case *nvext.Verdict:
		*x = nvext.VerdictAgreed
		return
	case *nvext.InferredField:
		*x = nvext.InferredOSL
		return
	case *nvext.Source:
		*x = nvext.SourceFamily
		return
	case *nvext.State:
		*x = nvext.StateEligible
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for field := range v.Type().Fields() {
			if field.Tag.Get("json") != "-" {
				fill(v.FieldByIndex(field.Index))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		e := reflect.New(v.Type().Elem()).Elem()
		fill(e)
		v.SetMapIndex(reflect.ValueOf("a"), e)
	case reflect.String:
		v.SetString("a")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	default:
		v.SetUint(1)
	}
}

// Null means absent wherever the schema allows it, and only there.
func TestOpenAPINvExtNulls(t *testing.T) {
	d := parseDescription(t)
	for name, v := range nvextSchemas {
		if _, ok := v.(json.Marshaler); !ok {
			continue // of answers: nothing reads them here
		}
		for key, p := range d.object(t, "/components/schemas/"+name)["properties"].(object) {
			with := object{key: nil}
			if name == "SessionControl" && key != "session_id" {
				with["session_id"] = "s"
			}
			raw, _ := json.Marshal(with)
			err := json.Unmarshal(raw, reflect.New(reflect.TypeOf(v)).Interface())
			if allowed := len(d.check(p, nil, key)) == 0; allowed != (err == nil) {
				t.Errorf("%s.%s: null allowed by openapi.json: %v, by nvext: %v (%v)", name, key, allowed, err == nil, err)
			}
		}
	}
}

// constants returns the string constants of a Go file by name, those for which
// keep is true of the name and the declared type.
func constants(t *testing.T, file string, keep func(name, typ string) bool) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, decl := range f.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			s := spec.(*ast.ValueSpec)
			typ, _ := s.Type.(*ast.Ident)
			for i, name := range s.Names {
				if i >= len(s.Values) || !keep(name.Name, fmt.Sprint(typ)) {
					continue
				}
				if lit, ok := s.Values[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
					out[name.Name], _ = strconv.Unquote(lit.Value)
				}
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s: no such constants", file)
	}
	return out
}

func TestOpenAPIEnums(t *testing.T) {
	d := parseDescription(t)
	typed := func(want string) func(string, string) bool {
		return func(_, typ string) bool { return typ == want }
	}
	for _, tc := range []struct {
		name, pointer, file string
		keep                func(name, typ string) bool
	}{
		{"error codes", "/components/schemas/ErrorCode", "../openai/error.go", typed("Code")},
		{"error types", "/components/schemas/Error/properties/error/properties/type", "../openai/error.go",
			func(name, _ string) bool { return strings.HasPrefix(name, "type") }},
		{"reasons", "/components/schemas/Routing/properties/reason", "../../nvext/routing.go", typed("Reason")},
		{"verdicts", "/components/schemas/Routing/properties/cache_verdict", "../../nvext/routing.go", typed("Verdict")},
		{"limits", "/components/schemas/LimitKind", "../sched/queue_limit.go", typed("LimitKind")},
		{"states", "/components/schemas/Candidate/properties/state", "../../nvext/routing.go", typed("State")},
		{"session actions", "/components/schemas/SessionControl/properties/action", "../../nvext/nvext.go", typed("SessionAction")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := slices.Sorted(maps.Values(constants(t, tc.file, tc.keep)))
			var got []string
			for _, v := range asList(d.object(t, tc.pointer)["enum"]) {
				if s, ok := v.(string); ok {
					got = append(got, s)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-code +openapi.json):\n%s", diff)
			}
		})
	}
}

// Every code has an example under its status, with its type.
func TestOpenAPIErrors(t *testing.T) {
	d := parseDescription(t)
	codes := constants(t, "../openai/error.go", func(_, typ string) bool { return typ == "Code" })
	for _, path := range []string{"/paths/~1v1~1chat~1completions/post", "/paths/~1v1~1completions/post"} {
		responses := d.object(t, path+"/responses")
		for _, code := range slices.Sorted(maps.Values(codes)) {
			e := &openai.Error{Code: openai.Code(code), Message: "m"}
			r := d.follow(responses[strconv.Itoa(e.HTTPStatus())])
			if r == nil {
				t.Errorf("%s: status %d of %s is not described", path, e.HTTPStatus(), code)
				continue
			}
			var body struct {
				Error struct{ Type, Code string }
			}
			if err := json.Unmarshal(e.AppendJSON(nil, openai.FormatOpenAI), &body); err != nil {
				t.Fatal(err)
			}
			media := r["content"].(object)["application/json"].(object)
			example, ok := media["examples"].(object)[code].(object)
			if !ok {
				t.Errorf("%s: status %d has no example for %s", path, e.HTTPStatus(), code)
				continue
			}
			got := example["value"].(object)["error"].(object)
			if got["code"] != body.Error.Code || got["type"] != body.Error.Type {
				t.Errorf("%s: example %s has code %v and type %v, want type %s", path, code, got["code"], got["type"], body.Error.Type)
			}
			if _, described := asObject(r["headers"])["Retry-After"]; described != e.Retry() {
				t.Errorf("%s: Retry-After described for %s: %v, sent: %v", path, code, described, e.Retry())
			}
			d.checkJSON(t, media["schema"], e.AppendJSON(nil, openai.FormatOpenAI))
			d.checkJSON(t, media["schema"], e.AppendJSON(nil, openai.FormatDynamo))
		}
	}
}

func TestOpenAPIHeaders(t *testing.T) {
	d := parseDescription(t)
	want := []string{headerRequestID, headerOldID, headerXRequestID, headerTraceparent, headerTracestate}
	for name, value := range constants(t, "../../nvext/headers.go", func(name, _ string) bool { return true }) {
		if name != "HeaderMetaPrefix" {
			want = append(want, value)
		}
	}
	for i := range want {
		want[i] = strings.ToLower(want[i])
	}
	slices.Sort(want)
	for _, path := range []string{"/paths/~1v1~1chat~1completions/post", "/paths/~1v1~1completions/post"} {
		var got []string
		for _, p := range asList(d.object(t, path)["parameters"]) {
			got = append(got, d.follow(p)["name"].(string))
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: headers (-code +openapi.json):\n%s", path, diff)
		}
	}
	// Metadata headers have no name of their own to list.
	prefix := strings.ToLower(nvext.HeaderMetaPrefix)
	if text := d.object(t, "/paths/~1v1~1chat~1completions/post")["description"].(string); !strings.Contains(text, "`"+prefix+"`") {
		t.Errorf("the description of chat completions does not mention %s", prefix)
	}
}

// Examples and defaults fit the schemas they stand in.
func TestOpenAPIExamplesFit(t *testing.T) {
	d := parseDescription(t)
	count := 0
	try := func(schema, v any, path string) {
		count++
		for _, p := range d.check(schema, v, path) {
			t.Error(p)
		}
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		if l, ok := v.([]any); ok {
			for i, e := range l {
				walk(path+"/"+strconv.Itoa(i), e)
			}
		}
		o, ok := v.(object)
		if !ok {
			return
		}
		if schema, ok := o["schema"].(object); ok { // of a body, parameter or header
			for name, e := range asObject(o["examples"]) {
				try(schema, e.(object)["value"], path+"/examples/"+name)
			}
			if e, ok := o["example"]; ok {
				try(schema, e, path+"/example")
			}
		} else { // a schema itself
			for i, e := range asList(o["examples"]) {
				try(o, e, path+"/examples/"+strconv.Itoa(i))
			}
			if e, ok := o["default"]; ok && (o["type"] != nil) {
				try(o, e, path+"/default")
			}
		}
		for k, m := range o {
			if k != "example" && k != "examples" && k != "default" {
				walk(path+"/"+k, m)
			}
		}
	}
	walk("", d.root)
	if count < 100 {
		t.Errorf("%d examples checked, expected more: does this test still find them?", count)
	}
}

func asObject(v any) object {
	o, _ := v.(object)
	return o
}

// What the examples show is what the server takes.
func TestOpenAPIExamplesParse(t *testing.T) {
	d := parseDescription(t)
	for _, ep := range []openai.Endpoint{openai.Chat, openai.Completions} {
		pointer := "/paths/" + strings.ReplaceAll(ep.Path(), "/", "~1") + "/post/requestBody/content/application~1json/examples"
		for name, e := range d.object(t, pointer) {
			raw, _ := json.Marshal(e.(object)["value"])
			r, err := openai.ParseRequest(ep, raw)
			if err != nil {
				t.Errorf("%s %s: %v", ep.Path(), name, err)
				continue
			}
			if r.NvExt == nil {
				continue
			}
			parseClean(t, r.NvExt)
		}
	}
	for _, e := range asList(d.object(t, "/components/schemas/NvExt")["examples"]) {
		raw, _ := json.Marshal(e)
		parseClean(t, raw)
	}
	// Each member by itself, in the object it belongs to.
	for name, at := range map[string]string{
		"NvExt": `%s`, "AgentHints": `{"agent_hints":%s}`, "CacheControl": `{"cache_control":%s}`,
		"SessionControl": `{"session_control":%s}`, "MetadataUpload": `{"metadata_upload":%s}`,
		"RoutingConstraints": `{"routing_constraints":%s}`, "RouterTargets": `{"router":%s}`,
	} {
		for key, p := range d.object(t, "/components/schemas/"+name+"/properties") {
			for _, e := range asList(p.(object)["examples"]) {
				with := object{key: e}
				if name == "SessionControl" {
					with["session_id"] = "s"
				}
				inner, _ := json.Marshal(with)
				parseClean(t, fmt.Appendf(nil, at, inner))
			}
		}
	}
}

// parseClean parses an nvext in which everything should be known and sensible.
func parseClean(t *testing.T, raw []byte) {
	t.Helper()
	ext, err := nvext.Parse(raw)
	if err != nil {
		t.Errorf("%s: %v", raw, err)
	} else if len(ext.Ignored) > 0 || len(ext.Unknown) > 0 {
		t.Errorf("%s: ignored %v, unknown %v", raw, ext.Ignored, ext.Unknown)
	}
}

func TestOpenAPIStreamExamples(t *testing.T) {
	d := parseDescription(t)
	for _, ep := range []openai.Endpoint{openai.Chat, openai.Completions} {
		pointer := "/paths/" + strings.ReplaceAll(ep.Path(), "/", "~1") + "/post/responses/200/content/text~1event-stream/examples"
		for name, e := range d.object(t, pointer) {
			t.Run(ep.Path()+" "+name, func(t *testing.T) {
				d.checkStream(t, ep.Path(), e.(object)["value"].(string))
			})
		}
	}
}

// checkStream checks a whole stream of the generation route at path: annotations,
// then chunks that fit their schema or an error, then the end marker.
func (d description) checkStream(t *testing.T, path, text string) {
	t.Helper()
	chunk := "ChatChunk"
	if path == openai.Completions.Path() {
		chunk = "Completion"
	}
	scan, r := openai.NewScanner(nil, 1<<20), strings.NewReader(text)
	size, chunks, done := 0, 0, false
	for scan.Fill(r) == nil {
		for ev, ok := scan.Next(); ok; ev, ok = scan.Next() {
			size += len(ev.Raw)
			switch {
			case done:
				t.Errorf("event after [DONE]: %s", ev.Raw)
			case ev.IsDone():
				done = true
			case ev.Data == nil && len(ev.Name) > 0: // an annotation
				if chunks > 0 {
					t.Errorf("annotation after a chunk: %s", ev.Raw)
				}
			default:
				chunks++
				d.checkJSON(t, object{"anyOf": []any{d.schema(chunk), d.schema("Error")}}, ev.Data)
			}
		}
	}
	if !done || chunks < 2 || size != len(text) {
		t.Errorf("done %v, %d chunks, %d of %d bytes in events:\n%s", done, chunks, size, len(text), text)
	}
}

// The bodies that we build ourselves fit their schemas.
func TestOpenAPIChunks(t *testing.T) {
	d := parseDescription(t)
	ext := reflect.New(reflect.TypeFor[nvext.Response]()).Elem()
	fill(ext)
	response := ext.Interface().(nvext.Response)
	c := &openai.Chunk{
		ID: "x", Model: "m", Created: 1700000000,
		Choices: []openai.Choice{
			{Text: []byte("a"), Role: true, Logprobs: []openai.TokenLogprob{{Logprob: openai.Logprob{Token: []byte("a"), Logprob: -1}}}},
			{Index: 1, FinishReason: "stop", StopReason: "."},
		},
		Usage: &openai.Usage{Prompt: 7, Completion: 1, Cached: 7, HasCached: true},
		NVExt: response.AppendJSON(nil),
	}
	d.checkJSON(t, d.schema("ChatChunk"), openai.AppendChatChunk(nil, c))
	d.checkJSON(t, d.schema("ChatCompletion"), openai.AppendChat(nil, c))
	d.checkJSON(t, d.schema("Completion"), openai.AppendCompletion(nil, c))
}

// A server without workers answers as described.
func TestOpenAPIAnswers(t *testing.T) {
	d := parseDescription(t)
	plain := newBareServer(t)
	drained := newBareServer(t)
	if err := drained.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	locked := newBareServer(t, Key{Name: "user", Hash: HashKey("user")})
	unregistered := New(Config{Router: plain.router})
	const js = "application/json"
	for _, tc := range []struct {
		name         string
		server       *Server
		method, path string // the path as described
		contentType  string
		body         string
		key          string
		want         int
	}{
		{"health", plain, "GET", "/health", "", "", "", 200},
		{"health while draining", drained, "GET", "/health", "", "", "", 503},
		{"live", plain, "GET", "/live", "", "", "", 200},
		{"live while draining", drained, "GET", "/live", "", "", "", 200},
		{"not ready", plain, "GET", "/ready", "", "", "", 503},
		{"models", plain, "GET", "/v1/models", "", "", "", 200},
		{"unknown model", plain, "GET", "/v1/models/{id}", "", "", "", 404},
		{"models without key", locked, "GET", "/v1/models", "", "", "", 401},
		{"metrics", plain, "GET", "/metrics", "", "", "", 200},
		{"metrics without admin key", locked, "GET", "/metrics", "", "", "user", 403},
		{"thresholds", plain, "GET", "/busy_threshold", "", "", "", 200},
		{"read threshold", plain, "POST", "/busy_threshold", js, `{"model":"m"}`, "", 200},
		{"threshold out of range", plain, "POST", "/busy_threshold", js, `{"model":"m","active_decode_blocks_threshold":2}`, "", 400},
		{"threshold of unknown model", plain, "POST", "/busy_threshold", js, `{"model":"m","active_decode_blocks_threshold":0.5}`, "", 404},
		{"threshold as form", plain, "POST", "/busy_threshold", "text/plain", `{}`, "", 415},
		{"threshold of wrong type", plain, "POST", "/busy_threshold", js, `{"model":1}`, "", 422},
		{"threshold without key", locked, "POST", "/busy_threshold", js, `{"model":"m"}`, "", 401},
		{"decisions", plain, "GET", "/debug/decisions", "", "", "", 200},
		{"decisions without admin key", locked, "GET", "/debug/decisions", "", "", "user", 403},
		{"loads of nothing", plain, "GET", "/potential_loads", "", "", "", 503},
		{"loads of an unknown model", plain, "POST", "/potential_loads", js, `{"model":"m","token_ids":[1]}`, "", 404},
		{"loads of bad JSON", plain, "POST", "/potential_loads", js, `{`, "", 400},
		{"router without method", plain, "POST", "/router", js, `{}`, "", 400},
		{"router as form", plain, "POST", "/router", "text/plain", `{}`, "", 415},
		{"router without admin key", locked, "POST", "/router", js, `{}`, "user", 403},
		{"new of an unknown model", plain, "POST", "/router", js, `{"method":"new","model":"m","tokens":[1]}`, "", 404},
		{"new while draining", drained, "POST", "/router", js, `{"method":"new","tokens":[1]}`, "", 503},
		{"engines", plain, "GET", "/v1/engines", "", "", "", 200},
		{"engines without admin key", locked, "GET", "/v1/engines", "", "", "user", 403},
		{"register without a URL", plain, "POST", "/v1/engines", js, `{}`, "", 400},
		{"register", plain, "POST", "/v1/engines", js, `{"url":"http://e"}`, "", 200},
		{"register what is taken", plain, "POST", "/v1/engines", js, `{"url":"http://e","id":7}`, "", 409},
		{"register without a registry", unregistered, "POST", "/v1/engines", js, `{"url":"http://e"}`, "", 501},
		{"heartbeat of nobody", plain, "PUT", "/v1/engines/{id}/heartbeat", "", "", "", 400},
		{"deregister nobody", plain, "DELETE", "/v1/engines/{id}", "", "", "", 400},
		{"embeddings of an unknown model", plain, "POST", "/v1/embeddings", js, `{"model":"m"}`, "", 404},
		{"embeddings of bad JSON", plain, "POST", "/v1/embeddings", js, `{`, "", 400},
		{"embeddings without key", locked, "POST", "/v1/embeddings", js, `{}`, "", 401},
		{"embeddings while draining", drained, "POST", "/v1/embeddings", js, `{}`, "", 503},
		{"speech of nobody", plain, "POST", "/v1/audio/speech", js, `{"input":"a"}`, "", 503},
		{"openapi", plain, "GET", "/openapi.json", "", "", "", 200},
		{"docs", plain, "GET", "/docs", "", "", "", 200},
		{"chat with bad JSON", plain, "POST", "/v1/chat/completions", js, `{`, "", 400},
		{"chat with unknown model", plain, "POST", "/v1/chat/completions", js, `{"model":"m","messages":[{"role":"user","content":"a"}]}`, "", 404},
		{"chat as form", plain, "POST", "/v1/chat/completions", "text/plain", `a=b`, "", 415},
		{"chat while draining", drained, "POST", "/v1/chat/completions", js, `{}`, "", 503},
		{"chat without key", locked, "POST", "/v1/chat/completions", js, `{}`, "", 401},
		{"completion pinned by an untrusted key", locked, "POST", "/v1/completions", js, `{"model":"m","prompt":"a","nvext":{"dp_rank":0}}`, "user", 403},
		{"completion with wrong type", plain, "POST", "/v1/completions", js, `{"model":"m","prompt":"a","nvext":{"dp_rank":"0"}}`, "", 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := httptest.NewRequest(tc.method, strings.ReplaceAll(tc.path, "{id}", "org/m"), strings.NewReader(tc.body))
			if tc.contentType != "" {
				req.Header.Set("Content-Type", tc.contentType)
			}
			if tc.key != "" {
				req.Header.Set("Authorization", "Bearer "+tc.key)
			}
			rec := httptest.NewRecorder()
			tc.server.ServeHTTP(rec, req)
			if rec.Code != tc.want {
				t.Fatalf("status %d, want %d: %s", rec.Code, tc.want, rec.Body)
			}
			op := d.object(t, "/paths/"+strings.ReplaceAll(tc.path, "/", "~1")+"/"+strings.ToLower(tc.method))
			d.checkAnswer(t, tc.path, op, rec.Result(), rec.Body.Bytes())
		})
	}
	d.operations(func(method, path string, op object) {
		if len(d.object(t, "/paths/"+strings.ReplaceAll(path, "/", "~1"))) > 1 {
			return // knows both methods
		}
		t.Run("wrong method for "+path, func(t *testing.T) {
			wrong := http.MethodPost
			if method == "post" {
				wrong = http.MethodGet
			}
			rec := httptest.NewRecorder()
			plain.ServeHTTP(rec, httptest.NewRequest(wrong, strings.ReplaceAll(path, "{id}", "m"), nil))
			if rec.Code != http.StatusMethodNotAllowed {
				t.Fatalf("status %d, want 405", rec.Code)
			}
			d.checkAnswer(t, path, op, rec.Result(), rec.Body.Bytes())
		})
	})
}

// checkAnswer compares an answer with what the operation says about its status.
func (d description) checkAnswer(t *testing.T, path string, op object, r *http.Response, body []byte) {
	t.Helper()
	described := d.follow(op["responses"].(object)[strconv.Itoa(r.StatusCode)])
	if described == nil {
		t.Fatalf("status %d is not described", r.StatusCode)
	}
	for name := range asObject(described["headers"]) {
		if r.Header.Get(name) == "" {
			t.Errorf("header %s is described and was not sent", name)
		}
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	content, ok := described["content"].(object)[media].(object)
	if err != nil || !ok {
		t.Fatalf("content type %q is not described", r.Header.Get("Content-Type"))
	}
	switch media {
	case "application/json":
		d.checkJSON(t, content["schema"], body)
	case "text/event-stream":
		d.checkStream(t, path, string(body))
	}
}

// With simulated engines behind it, every example request is answered as
// described.
func TestOpenAPIExamplesAnswered(t *testing.T) {
	d := parseDescription(t)
	rg := newRig(t, rigConfig{
		engines: 2,
		front:   Config{Engines: someEngines, Registry: new(fakeRegistry)},
		fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if passed[r.URL.Path] != "" {
				answer(200, `{}`)(w, r)
				return
			}
			next.ServeHTTP(w, r)
		},
	})
	d.operations(func(method, path string, op object) {
		if method == "put" || method == "delete" {
			return // nobody has registered
		}
		if method != "post" {
			t.Run(path, func(t *testing.T) {
				resp, body := rg.get(t, strings.ReplaceAll(path, "{id}", "stator-sim"))
				if resp.StatusCode != http.StatusOK {
					t.Fatalf("status %d: %s", resp.StatusCode, body)
				}
				d.checkAnswer(t, path, op, resp, []byte(body))
			})
			return
		}
		media := asObject(op["requestBody"].(object)["content"].(object)["application/json"])
		for name, e := range asObject(media["examples"]) { // forms have none
			t.Run(path+" "+name, func(t *testing.T) {
				raw, _ := json.Marshal(e.(object)["value"])
				resp, body := rg.post(t, path, string(raw))
				if resp.StatusCode != http.StatusOK {
					t.Fatalf("status %d: %s", resp.StatusCode, body)
				}
				d.checkAnswer(t, path, op, resp, []byte(body))
			})
		}
	})
}

// The page is whole in itself and makes no markup from data.
func TestDocsPage(t *testing.T) {
	page := string(docsHTML)
	for _, bad := range []string{
		`https?:`, `\bsrc\s*=`, `@import`, `\burl\(`, `//cdn`,
		`innerHTML`, `outerHTML`, `insertAdjacentHTML`, `document\.write`, `\beval\b`, `new Function`, `srcdoc`, `DOMParser`,
	} {
		if at := regexp.MustCompile(bad).FindString(page); at != "" {
			t.Errorf("docs.html contains %q", at)
		}
	}
	fetches := regexp.MustCompile(`fetch\(([^)]*)\)`).FindAllStringSubmatch(page, -1)
	for _, f := range fetches {
		if f[1] != `"./openapi.json"` && f[1] != `"./v1/models"` {
			t.Errorf("docs.html fetches %s; only this server's description and model list are allowed", f[1])
		}
	}
	for _, want := range []string{`<html lang="en">`, `name="viewport"`, `prefers-color-scheme: dark`, `Content-Security-Policy`} {
		if !strings.Contains(page, want) {
			t.Errorf("docs.html lacks %q", want)
		}
	}
}
