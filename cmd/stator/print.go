package main

import (
	"bytes"
	"reflect"

	"go.yaml.in/yaml/v3"

	"github.com/stator-ai/stator"
)

// redacted stands for a secret that is set.
const redacted = "REDACTED"

// printConfig returns a configuration as the YAML that makes it, in the order of
// the struct, with every key and without secrets.
func printConfig(cfg *stator.Config) ([]byte, error) {
	return encodeYAML(valueNode(reflect.ValueOf(cfg).Elem()))
}

func encodeYAML(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func valueNode(v reflect.Value) *yaml.Node {
	switch v.Kind() {
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for f := range fields(v.Type()) {
			value := valueNode(v.FieldByIndex(f.Index))
			if f.Tag.Get("secret") == "true" && value.Value != "" {
				value = textNode(redacted)
			}
			n.Content = append(n.Content, textNode(f.Tag.Get("koanf")), value)
		}
		return n
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		if v.Len() == 0 {
			n.Style = yaml.FlowStyle // [] on the line of its key
		}
		for i := range v.Len() {
			n.Content = append(n.Content, valueNode(v.Index(i)))
		}
		return n
	case reflect.Map:
		if v.Len() == 0 {
			return &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		}
		n := new(yaml.Node)
		if err := n.Encode(v.Interface()); err != nil {
			panic(err) // it was read from YAML
		}
		return n
	case reflect.String:
		return textNode(v.String())
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: formatValue(v)}
	}
}

// textNode returns a string that stays one: the encoder quotes what would read
// as something else.
func textNode(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}
