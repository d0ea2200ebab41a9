package trie

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strconv"
	"strings"
)

// MaxDepth is how many names a path has at most: [Parse] refuses a deeper file, and a
// [Builder] keeps a longer path as its last two names.
const MaxDepth = 256

// rootName is the name of a trie's root, and of the function that NeMo Agent Toolkit says
// has called a workflow's entry.
const rootName = "root"

// unnamed is the workflow's name where nobody gave one.
const unnamed = "unknown"

// Parse reads a trie's file. It keeps the order of children and indices. Of a member that
// is there twice the last counts, and a child's key is its name, whatever the name inside
// it says. Members that it does not know are ignored. A file may lack version, which must
// otherwise be 1.x, generated_at and workflow_name, the children and predictions of a node,
// single metrics, which are 0 then, and latency_sensitivity.
//
// An error says where in the file what was expected:
//
//	line 9: root.children.agent.predictions_any_index.output_tokens: expected an object, got null
func Parse(data []byte) (*Trie, error) { return parse(bytes.NewReader(data)) }

func parse(r io.Reader) (*Trie, error) {
	p := parser{newJSONReader(r)}
	t := &Trie{Version: Version, WorkflowName: unnamed}
	err := p.object(func(key []byte) (err error) {
		switch string(key) {
		case "version":
			t.Version, err = p.version()
			return within("version", err)
		case "generated_at":
			t.GeneratedAt, err = p.string()
			return within("generated_at", err)
		case "workflow_name":
			t.WorkflowName, err = p.string()
			return within("workflow_name", err)
		case "root":
			t.Root, err = p.node(0)
			return within("root", err)
		}
		return p.skip()
	})
	if err != nil {
		return nil, err
	}
	if t.Root == nil {
		return nil, p.missing("root", "an object")
	}
	if more, err := p.more(); err != nil {
		return nil, err
	} else if more {
		return nil, p.errorf("expected nothing after the trie")
	}
	return t, nil
}

// parser reads the parts of a trie's file.
type parser struct{ *jsonReader }

func (p parser) version() (string, error) {
	v, err := p.string()
	if err != nil {
		return "", err
	}
	if major, _, _ := strings.Cut(v, "."); major != "1" {
		return "", p.errorf("expected 1.x, got %.40q", v)
	}
	return v, nil
}

// node reads a node at a depth, 0 for the root.
func (p parser) node(depth int) (*Node, error) {
	if depth > MaxDepth {
		return nil, p.errorf("expected at most %d levels of children", MaxDepth)
	}
	n, named := new(Node), false
	err := p.object(func(key []byte) (err error) {
		switch string(key) {
		case "name":
			n.Name, err = p.string()
			named = true
			return within("name", err)
		case "predictions_by_call_index":
			n.ByCallIndex, n.byIndex = nil, nil
			err = p.object(func(key []byte) error { return p.indexed(n, string(key)) })
			return within("predictions_by_call_index", err)
		case "predictions_any_index":
			n.AnyIndex, err = p.maybePrediction()
			return within("predictions_any_index", err)
		case "children":
			n.Children, n.byName = nil, nil
			err = p.object(func(key []byte) error { return p.child(n, string(key), depth+1) })
			return within("children", err)
		}
		return p.skip()
	})
	if err == nil && !named {
		err = p.missing("name", "a string")
	}
	return n, err
}

// child reads a child of n.
func (p parser) child(n *Node, name string, depth int) error {
	c, err := p.node(depth)
	if err != nil {
		return within(inPath(name), err)
	}
	c.Name = name
	n.addChild(c)
	return nil
}

// inPath returns a name as it is shown in an error's path.
func inPath(name string) string {
	odd := func(r rune) bool { return strings.ContainsRune(". \"\\", r) || !strconv.IsPrint(r) }
	if name == "" || strings.ContainsFunc(name, odd) {
		return strconv.Quote(name)
	}
	return name
}

// indexed reads the prediction of n for one index.
func (p parser) indexed(n *Node, key string) error {
	index, err := strconv.ParseUint(key, 10, 32)
	if err != nil || index == 0 {
		return within(inPath(key), p.errorf("expected an index from 1 on as the name of the member"))
	}
	prediction, err := p.prediction()
	if err != nil {
		return within(key, err)
	}
	n.addIndexed(Indexed{Index: int(index), Prediction: prediction})
	return nil
}

// maybePrediction reads a prediction, or null as nil.
func (p parser) maybePrediction() (*Prediction, error) {
	if none, err := p.null(); none || err != nil {
		return nil, err
	}
	v, err := p.prediction()
	return &v, err
}

func (p parser) prediction() (v Prediction, err error) {
	var remaining, arrival, output bool
	err = p.object(func(key []byte) (err error) {
		switch string(key) {
		case "remaining_calls":
			v.RemainingCalls, err = p.metrics()
			remaining = true
			return within("remaining_calls", err)
		case "interarrival_ms":
			v.InterArrivalMS, err = p.metrics()
			arrival = true
			return within("interarrival_ms", err)
		case "output_tokens":
			v.OutputTokens, err = p.metrics()
			output = true
			return within("output_tokens", err)
		case "latency_sensitivity":
			v.LatencySensitivity, err = p.level()
			return within("latency_sensitivity", err)
		}
		return p.skip()
	})
	switch {
	case err != nil:
	case !remaining:
		err = p.missing("remaining_calls", "an object")
	case !arrival:
		err = p.missing("interarrival_ms", "an object")
	case !output:
		err = p.missing("output_tokens", "an object")
	}
	return v, err
}

func (p parser) metrics() (m Metrics, err error) {
	err = p.object(func(key []byte) (err error) {
		switch string(key) {
		case "sample_count":
			if m.SampleCount, err = p.integer(); err == nil && m.SampleCount < 0 {
				err = p.errorf("expected a count, got %d", m.SampleCount)
			}
			return within("sample_count", err)
		case "mean":
			m.Mean, err = p.finite()
			return within("mean", err)
		case "p50":
			m.P50, err = p.finite()
			return within("p50", err)
		case "p90":
			m.P90, err = p.finite()
			return within("p90", err)
		case "p95":
			m.P95, err = p.finite()
			return within("p95", err)
		}
		return p.skip()
	})
	return m, err
}

// level reads an integer, or null as nil.
func (p parser) level() (*int, error) {
	if none, err := p.null(); none || err != nil {
		return nil, err
	}
	v, err := p.integer()
	return &v, err
}

// integer reads an integer, which may be written as 3.0.
func (p parser) integer() (int, error) {
	v, err := p.finite()
	if err != nil {
		return 0, err
	}
	if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
		return 0, p.errorf("expected an integer, got %.40s", p.text)
	}
	return int(v), nil
}

// finite reads a number that is one: not NaN, and not out of range.
func (p parser) finite() (float64, error) {
	v, err := p.number()
	if err != nil {
		return 0, err
	}
	if math.IsInf(v, 0) || !json.Valid(p.text) {
		return 0, p.errorf("expected a finite number, got %.40s", p.text)
	}
	return v, nil
}

// missing is the error for a member that has to be there.
func (p parser) missing(key, what string) error {
	return within(key, p.errorf("expected %s, got nothing", what))
}
