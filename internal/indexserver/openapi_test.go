package indexserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

type object = map[string]any

// document is openapi.json.
type document struct{ root object }

func parse(t *testing.T, raw []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return v
}

func readDocument(t *testing.T) document { return document{parse(t, openapiJSON).(object)} }

// resolve returns what a reference stands for, and anything else as it is.
func (d document) resolve(v any) object {
	o, _ := v.(object)
	ref, ok := o["$ref"].(string)
	if !ok {
		return o
	}
	var at any = d.root
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at = at.(object)[part]
	}
	return at.(object)
}

// check returns what is wrong with v by a schema. Members that the schema does not
// list are wrong, too, and so are keywords that are not known here.
func (d document) check(schema, v any, path string) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, path+": "+fmt.Sprintf(format, args...)) }
	s := d.resolve(schema)
	number, _ := v.(json.Number)
	list, _ := v.([]any)
	members, isObject := v.(object)
	for keyword, arg := range s {
		switch keyword {
		case "description", "examples", "default", "format":
		case "minLength", "maxLength":
			text, ok := v.(string)
			bound, _ := arg.(json.Number).Int64()
			if n := int64(utf8.RuneCountInString(text)); ok && (keyword == "minLength" && n < bound || keyword == "maxLength" && n > bound) {
				bad("%d characters are beyond the %s %v", n, keyword, bound)
			}
		case "pattern":
			if text, ok := v.(string); ok && !regexp.MustCompile(arg.(string)).MatchString(text) {
				bad("%q does not match %v", text, arg)
			}
		case "type":
			if !slices.ContainsFunc(alternatives(arg), func(t any) bool { return typeIs(t.(string), v) }) {
				bad("got %v, want %v", v, arg)
			}
		case "const":
			if !reflect.DeepEqual(arg, v) {
				bad("got %v, want %v", v, arg)
			}
		case "enum":
			if !slices.ContainsFunc(arg.([]any), func(e any) bool { return reflect.DeepEqual(e, v) }) {
				bad("got %v, want one of %v", v, arg)
			}
		case "minimum", "maximum":
			n, err := number.Float64()
			bound, _ := arg.(json.Number).Float64()
			if err == nil && (keyword == "minimum" && n < bound || keyword == "maximum" && n > bound) {
				bad("%s is beyond the %s %v", number, keyword, bound)
			}
		case "minItems", "maxItems":
			want, _ := arg.(json.Number).Int64()
			if n := int64(len(list)); list != nil && (keyword == "minItems" && n < want || keyword == "maxItems" && n > want) {
				bad("%d items, want %s %d", n, keyword, want)
			}
		case "items":
			for i, e := range list {
				problems = append(problems, d.check(arg, e, path+"["+strconv.Itoa(i)+"]")...)
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
			for name, m := range members {
				problems = append(problems, d.check(arg, m, path+"."+name)...)
			}
		case "anyOf":
			var why []string
			fits := slices.ContainsFunc(arg.([]any), func(sub any) bool {
				p := d.check(sub, v, path)
				why = append(why, p...)
				return len(p) == 0
			})
			if !fits {
				bad("nothing fits: %s", strings.Join(why, "; "))
			}
		default:
			bad("schema keyword %q", keyword)
		}
	}
	return problems
}

func alternatives(v any) []any {
	if l, ok := v.([]any); ok {
		return l
	}
	return []any{v}
}

func typeIs(want string, v any) bool {
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
		return want == "number" || want == "integer" && !strings.ContainsAny(v.String(), ".eE")
	}
	return false
}

// answered checks an answer against what is said about its status.
func (d document) answered(t *testing.T, op object, resp *http.Response, body string) {
	t.Helper()
	described := d.resolve(op["responses"].(object)[strconv.Itoa(resp.StatusCode)])
	if described == nil {
		t.Fatalf("status %d is not described: %s", resp.StatusCode, body)
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	content, ok := described["content"].(object)[media].(object)
	if err != nil || !ok {
		t.Fatalf("content type %q is not described", resp.Header.Get("Content-Type"))
	}
	if media == "application/json" {
		for _, p := range d.check(content["schema"], parse(t, []byte(body)), "$") {
			t.Errorf("%s\nin %s", p, body)
		}
	}
}

func TestOpenAPIRoutes(t *testing.T) {
	d := readDocument(t)
	want, got := map[string]string{}, map[string]string{}
	for path, rt := range New(Config{}).routes {
		want[path] = strings.ToLower(rt.method)
	}
	ids := map[any]bool{}
	for path, item := range d.root["paths"].(object) {
		for method, op := range item.(object) {
			got[path] += method
			if id := op.(object)["operationId"]; id == nil || ids[id] {
				t.Errorf("%s: operationId %v is missing or taken", path, id)
			} else {
				ids[id] = true
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-server +openapi.json):\n%s", diff)
	}
}

// Every reference leads somewhere, and everything is referred to.
func TestOpenAPIReferences(t *testing.T) {
	d := readDocument(t)
	used := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case object:
			if ref, ok := v["$ref"].(string); ok {
				used[strings.TrimPrefix(ref, "#/components/")] = d.resolve(v) != nil
			}
			for _, m := range v {
				walk(m)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(d.root)
	for kind, all := range d.root["components"].(object) {
		for name := range all.(object) {
			if !used[kind+"/"+name] {
				t.Errorf("%s/%s is used nowhere", kind, name)
			}
			delete(used, kind+"/"+name)
		}
	}
	if len(used) > 0 {
		t.Errorf("references lead nowhere: %v", slices.Sorted(maps.Keys(used)))
	}
}

// What the schemas refuse is refused, and the next best is not.
func TestOpenAPILimits(t *testing.T) {
	d := readDocument(t)
	r := newRig(t, Config{})
	r.must(t, "/register", registered)
	schemas := d.root["components"].(object)["schemas"].(object)
	plane := schemas["PlaneQuery"].(object)["anyOf"].([]any)[1].(object)["properties"].(object)["FindMatchesHashed"]
	for _, schema := range []any{schemas["HashQuery"], schemas["Decision"], plane} {
		hashes := schema.(object)["properties"].(object)["block_hashes"].(object)
		if got := fmt.Sprint(hashes["maxItems"]); got != strconv.Itoa(maxHashes) {
			t.Errorf("at most %s hashes, want %d", got, maxHashes)
		}
	}
	name := func(n int) string { return strings.Repeat("x", n) }
	event := func(hash string) string {
		return `{"worker_id":1,"event":{"event_id":1,"data":{"stored":{"parent_hash":` + hash + `,"blocks":[{"block_hash":-2,"tokens_hash":` + hash + `}]}}}}`
	}
	const lowest, highest = "-9223372036854775808", "18446744073709551615"
	for _, row := range []struct {
		path, body string
		fine       bool
	}{
		{"/register", `{"instance_id":2,"block_size":16,"model_name":"` + name(maxName) + `"}`, true},
		{"/register", `{"instance_id":2,"block_size":16,"model_name":"` + name(maxName+1) + `"}`, false},
		{"/register", `{"instance_id":2,"block_size":16,"model_name":""}`, false},
		{"/register", `{"instance_id":2,"block_size":16,"model_name":"a:b","routing_group":"` + name(maxName) + `"}`, true},
		{"/register", `{"instance_id":2,"block_size":16,"model_name":"m","routing_group":"` + name(maxName+1) + `"}`, false},
		{"/register", `{"instance_id":2,"block_size":16,"model_name":"m","routing_group":"a:b"}`, false},
		{"/query_by_hash", `{"model_name":"m","block_hashes":[` + lowest + "," + highest + `]}`, true},
		{"/kv_indexer_query?model_name=m", `{"FindMatchesHashed":{"block_hashes":[` + lowest + `]}}`, true},
		{"/restore", `{"n:default":{"block_size":16,"events":[` + event(lowest) + "," + event(highest) + `]}}`, true},
		{"/restore", `{"n":{"block_size":16,"events":[],"routing_group":"a:b"}}`, false},
		{"/restore", `{"n":{"block_size":16,"events":[],"model_name":"` + name(maxName+1) + `"}}`, false},
	} {
		path, _, _ := strings.Cut(row.path, "?")
		op := d.root["paths"].(object)[path].(object)["post"].(object)
		schema := op["requestBody"].(object)["content"].(object)["application/json"].(object)["schema"]
		if problems := d.check(schema, parse(t, []byte(row.body)), "$"); (len(problems) == 0) != row.fine {
			t.Errorf("%s %.100s: by the schema it has the problems %.300q", path, row.body, problems)
		}
		if status, out := r.post(t, row.path, row.body); status/100 == 2 != row.fine {
			t.Errorf("%s %.100s: status %d: %.300s", path, row.body, status, out)
		}
	}
}

// Examples fit their schemas, and the server answers them as described.
func TestOpenAPIExamples(t *testing.T) {
	d := readDocument(t)
	paths := d.root["paths"].(object)
	r := newRig(t, Config{Version: "test"})
	try := func(path string) {
		for method, v := range paths[path].(object) {
			op := v.(object)
			if method == "get" {
				resp, body := r.do(t, "GET", path, "", "")
				d.answered(t, op, resp, body)
				continue
			}
			media := op["requestBody"].(object)["content"].(object)["application/json"].(object)
			for name, e := range media["examples"].(object) {
				value := e.(object)["value"]
				for _, p := range d.check(media["schema"], value, path+" "+name) {
					t.Error(p)
				}
				raw, _ := json.Marshal(value)
				resp, body := r.do(t, "POST", path, "application/json", string(raw))
				if resp.StatusCode/100 != 2 {
					t.Errorf("%s %s: status %d: %s", path, name, resp.StatusCode, body)
				}
				d.answered(t, op, resp, body)
				// What is shown as the answer is the answer, but for what depends on more.
				answer := op["responses"].(object)[strconv.Itoa(resp.StatusCode)].(object)["content"].(object)["application/json"].(object)
				if ex, ok := answer["examples"].(object)["answer"].(object); ok && name != "dump" {
					if diff := cmp.Diff(ex["value"], parse(t, []byte(body))); diff != "" {
						t.Errorf("%s %s (-shown +answered):\n%s", path, name, diff)
					}
				}
			}
		}
	}
	// In an order in which each finds what it needs.
	order := []string{"/register", "/events", "/query", "/query_by_hash", "/kv_indexer_query", "/workers", "/dump", "/health",
		"/restore", "/route", "/metrics", "/openapi.json", "/unregister"}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(paths)), slices.Sorted(slices.Values(order))); diff != "" {
		t.Fatalf("(-openapi.json +tried):\n%s", diff)
	}
	for _, path := range order {
		try(path)
	}
}

// What a busy server says fits the schemas, and so do its errors.
func TestOpenAPIAnswers(t *testing.T) {
	d := readDocument(t)
	r := newFilled(t, Config{MaxBody: 1 << 16})
	for _, row := range []struct{ method, path, contentType, body string }{
		{"GET", "/workers", "", ""},
		{"GET", "/dump", "", ""},
		{"POST", "/query", "application/json", tokenQuery("m", 100)},
		{"POST", "/query", "application/json", `{`},
		{"POST", "/query", "text/plain", `{}`},
		{"POST", "/query", "application/json", `{"model_name":"x","token_ids":[]}`},
		{"POST", "/query", "application/json", strings.Repeat(" ", 1<<17)},
		{"POST", "/kv_indexer_query", "application/json", `"DumpTree"`},
		{"POST", "/register", "application/json", `{"instance_id":1,"model_name":"m","block_size":4}`},
		{"POST", "/register", "application/json", `{"instance_id":1,"model_name":"m","block_size":16,"endpoint":"tcp://*:1"}`},
		{"POST", "/register", "application/json", `{"instance_id":2,"model_name":"m","block_size":16,"endpoint":"127.0.0.1:1","replay_endpoint":"127.0.0.1:2"}`},
		{"POST", "/register", "application/json", `{"instance_id":2,"model_name":"m","block_size":16,"endpoint":"127.0.0.1:3"}`},
		{"GET", "/workers", "", ""},
		{"POST", "/events", "application/x-ndjson", stored(2, 0, 1, kv.Device, blocks(16))},
		{"POST", "/restore", "application/json", `{"m:default":{"block_size":16,"ranks":[{"worker_id":2}]}}`},
		{"POST", "/events", "application/x-ndjson", "x\n" + stored(3, 0, 1, kv.Device, blocks(16))},
		{"POST", "/restore", "application/json", `{"m:default":{"block_size":4,"ranks":[{"worker_id":1}]}}`},
		{"GET", "/query", "", ""},
	} {
		method := strings.ToLower(row.method)
		if row.path == "/query" {
			method = "post" // whose 405 it is
		}
		op := d.root["paths"].(object)[row.path].(object)[method].(object)
		resp, body := r.do(t, row.method, row.path, row.contentType, row.body)
		d.answered(t, op, resp, body)
	}
}
