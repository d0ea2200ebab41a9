package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/stator-ai/stator"
)

// file is a configuration file, checked against the settings there are.
type file struct {
	name     string
	values   map[string]any // nested like the file; values have the types of the settings
	origins  origins        // where each key was set
	problems []problem
	merging  map[*yaml.Node]bool // the "<<" mappings being walked
	refused  map[string]string   // why a key that is no setting is not taken, by its path
}

// problem is something wrong with the configuration and where it was said.
type problem struct {
	where origin
	stator.Problem
}

func (p problem) String() string {
	text := p.Problem.String()
	if p.Key == "" {
		text = p.Reason
	}
	if p.where.source == "" {
		return text
	}
	return p.where.String() + ": " + text
}

// parseFile reads the YAML of a configuration. What it cannot use is in problems
// and not in values.
func parseFile(name string, data []byte) *file {
	f := &file{name: name, origins: make(origins), merging: make(map[*yaml.Node]bool)}
	f.parse(data, configType, "")
	return f
}

// parse reads YAML whose root has the keys of the struct type t, which are below key
// in the configuration.
func (f *file) parse(data []byte, t reflect.Type, key string) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return // nothing but comments
	case err != nil:
		f.syntax(err)
		return
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		f.add(more.Line, "", "expected one YAML document, found a second")
	case !errors.Is(err, io.EOF):
		f.syntax(err)
	}
	if v, ok := f.walk(doc.Content[0], t, key); ok {
		f.values, _ = v.(map[string]any)
	}
}

func (f *file) at(line int) origin { return origin{f.name, line} }

func (f *file) add(line int, key, format string, args ...any) {
	f.problems = append(f.problems, problem{f.at(line), stator.Problem{Key: key, Reason: fmt.Sprintf(format, args...)}})
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)

// syntax adds an error of the YAML parser, which names its line in the text.
func (f *file) syntax(err error) {
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		line, _ := strconv.Atoi(m[1])
		f.add(line, "", "expected YAML: %s", m[2])
		return
	}
	reason := "expected YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")
	f.problems = append(f.problems, problem{f.at(0), stator.Problem{Reason: reason}})
}

// walk checks a node against the type of its setting. It returns false where
// there is nothing to take over: a problem, or a key without a value. Aliases
// that contain themselves do no harm, because the depth is that of the type.
func (f *file) walk(n *yaml.Node, t reflect.Type, key string) (any, bool) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil, t.Kind() == reflect.Pointer
	}
	switch t.Kind() {
	case reflect.Struct:
		if n.Kind != yaml.MappingNode {
			f.add(n.Line, key, "expected keys such as %s, got %s", strings.Join(someKeys(t), ", "), kindOf(n))
			return nil, false
		}
		m := make(map[string]any)
		f.mapping(n, t, key, m)
		return m, true
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			f.add(n.Line, key, "expected a list, got %s", kindOf(n))
			return nil, false
		}
		list := make([]any, 0, len(n.Content))
		for i, item := range n.Content {
			at := fmt.Sprintf("%s[%d]", key, i)
			f.origins[at] = f.at(item.Line)
			v, ok := f.walk(item, t.Elem(), at)
			if !ok { // keeps the numbers of the items that follow
				v = reflect.Zero(t.Elem()).Interface()
			}
			list = append(list, v)
		}
		return list, true
	case reflect.Map:
		if n.Kind != yaml.MappingNode {
			f.add(n.Line, key, "expected a mapping, got %s", kindOf(n))
			return nil, false
		}
		if t.Elem().Kind() == reflect.String {
			return f.texts(n, t.Elem(), key), true
		}
		v, err := freeValue(n, maxDepth)
		if err != nil {
			f.add(n.Line, key, "%s", err)
			return nil, false
		}
		return v, true
	}
	if n.Kind != yaml.ScalarNode {
		f.add(n.Line, key, "expected one value, got %s", kindOf(n))
		return nil, false
	}
	if t.Kind() == reflect.String && n.Tag == "!!bool" {
		f.add(n.Line, key, "expected text, got %s; put it in quotes if it is meant", n.Value)
		return nil, false
	}
	v, err := parseValue(t, n.Value)
	if err != nil {
		f.add(n.Line, key, "%s", err)
		return nil, false
	}
	return v, true
}

// texts returns a mapping from names that may be any to text. What it cannot use is
// left out.
func (f *file) texts(n *yaml.Node, t reflect.Type, path string) map[string]any {
	m := make(map[string]any, len(n.Content)/2)
	seen := make(map[string]int) // key to line
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		if name.Kind != yaml.ScalarNode || name.Tag == "!!merge" {
			f.add(name.Line, path, "expected text for a key, got %s", kindOf(name))
			continue
		}
		key := join(path, name.Value)
		if first, again := seen[name.Value]; again {
			f.add(name.Line, key, "set before, in line %d", first)
			continue
		}
		seen[name.Value] = name.Line
		f.origins[key] = f.at(name.Line)
		if v, ok := f.walk(n.Content[i+1], t, key); ok {
			m[name.Value] = v
		}
	}
	return m
}

// maxDepth bounds the nesting of values that have no type of their own, so that an
// alias which contains itself comes to an end.
const maxDepth = 16

// freeValue returns a value that may be anything JSON has. A date is text.
func freeValue(n *yaml.Node, depth int) (any, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if depth == 0 {
		return nil, fmt.Errorf("expected at most %d levels", maxDepth)
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i]
			if name.Kind != yaml.ScalarNode || name.Tag == "!!merge" {
				return nil, fmt.Errorf("expected text for a key, got %s", kindOf(name))
			}
			v, err := freeValue(n.Content[i+1], depth-1)
			if err != nil {
				return nil, err
			}
			m[name.Value] = v
		}
		return m, nil
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			var err error
			if list[i], err = freeValue(item, depth-1); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	switch n.Tag {
	case "!!null", "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, err
		}
		if x, ok := v.(float64); ok && (math.IsNaN(x) || math.IsInf(x, 0)) {
			return nil, fmt.Errorf("expected a number, got %q", n.Value)
		}
		return v, nil
	default:
		return n.Value, nil
	}
}

// mapping adds the keys of a mapping node to m. Keys of the mapping itself win
// over those it merges in with "<<".
func (f *file) mapping(n *yaml.Node, t reflect.Type, path string, m map[string]any) {
	seen := make(map[string]int) // key to line
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag == "!!merge" {
			f.merge(n.Content[i+1], t, path, m)
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.Tag == "!!merge" {
			continue
		}
		key := join(path, name.Value)
		if first, again := seen[name.Value]; again {
			f.add(name.Line, key, "set before, in line %d", first)
			continue
		}
		seen[name.Value] = name.Line
		field, ok := fieldNamed(t, name.Value)
		if !ok {
			reason := "unknown key"
			switch near := nearest(t, path, name.Value); {
			case f.refused[key] != "":
				reason = f.refused[key]
			case near == key: // of the configuration, and this is another file
				reason = "expected in the configuration file, not in this one"
			case near != "":
				reason += "; did you mean " + near + "?"
			}
			f.add(name.Line, key, "%s", reason)
			continue
		}
		f.origins[key] = f.at(name.Line)
		if v, ok := f.walk(value, field.Type, key); ok {
			m[name.Value] = v
		}
	}
}

// merge adds the keys of the mapping, or list of mappings, behind a "<<"; the
// first mapping of a list wins.
func (f *file) merge(n *yaml.Node, t reflect.Type, path string, m map[string]any) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		if !f.merging[n] { // else it merges itself in, directly or not
			f.merging[n] = true
			f.mapping(n, t, path, m)
			delete(f.merging, n)
		}
	case yaml.SequenceNode:
		for i := len(n.Content) - 1; i >= 0; i-- {
			item := n.Content[i]
			if item.Kind == yaml.AliasNode {
				item = item.Alias
			}
			if item.Kind != yaml.MappingNode {
				f.add(n.Line, path, "expected << to name mappings")
				return
			}
			f.merge(item, t, path, m)
		}
	default:
		f.add(n.Line, path, "expected << to name a mapping")
	}
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	default:
		return strconv.Quote(n.Value)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// someKeys returns the first keys of a section, as an example.
func someKeys(t reflect.Type) []string {
	var keys []string
	for f := range fields(t) {
		if len(keys) == 3 {
			break
		}
		keys = append(keys, f.Tag.Get("koanf"))
	}
	return keys
}

// origin is where a value was said: a line of the file, a variable or a flag.
type origin struct {
	source string // "stator.yaml", "STATOR_LISTEN", "--listen"
	line   int    // of a file, from 1
}

func (o origin) String() string {
	if o.line == 0 {
		return o.source
	}
	return o.source + ":" + strconv.Itoa(o.line)
}

// origins says where each key was set.
type origins map[string]origin

// of returns where a key or, if it was not set, the section around it was set.
func (o origins) of(key string) origin {
	for key != "" {
		if where, ok := o[key]; ok {
			return where
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return origin{}
}

// set notes that a key, with all below it, was set anew.
func (o origins) set(key string, where origin) {
	for k := range o {
		if strings.HasPrefix(k, key+".") || strings.HasPrefix(k, key+"[") {
			delete(o, k)
		}
	}
	o[key] = where
}
