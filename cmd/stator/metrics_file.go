package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/stator-ai/stator/internal/collect"
)

// metricsSections are where the settings of a collection may be in a file, from the inside
// of what NeMo Agent Toolkit has around them to the outside.
var metricsSections = [][]string{
	{"dynamo_metrics"},
	{"profiler", "dynamo_metrics"},
	{"eval", "general", "profiler", "dynamo_metrics"},
}

// readMetricsFile reads the settings of a collection from a file that may have others
// around them.
func readMetricsFile(name string) (collect.Config, error) {
	cfg := collect.DefaultConfig()
	data, err := os.ReadFile(name)
	if err != nil {
		return cfg, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return cfg, nil // nothing but comments
	} else if err != nil {
		return cfg, fmt.Errorf("%s: %w", name, err)
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return cfg, fmt.Errorf("%s: expected one YAML document", name)
	}
	section, where := &doc, name
	for _, path := range metricsSections {
		if n := below(&doc, path); n != nil {
			section, where = n, name+": "+strings.Join(path, ".")
			break
		}
	}
	if err := section.Decode(&cfg); err != nil {
		return cfg, fmt.Errorf("%s: %s", where, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return cfg, nil
}

// below returns the node at a path of keys; nil if there is none.
func below(n *yaml.Node, path []string) *yaml.Node {
	for _, key := range path {
		var m map[string]yaml.Node
		if n.Decode(&m) != nil {
			return nil
		}
		next, ok := m[key]
		if !ok {
			return nil
		}
		n = &next
	}
	return n
}
