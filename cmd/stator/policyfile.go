package main

import (
	"errors"
	"maps"
	"os"
	"reflect"

	"github.com/knadh/koanf/v2"
	"go.yaml.in/yaml/v3"

	"github.com/stator-ai/stator"
)

// policyFile is the path of a YAML file with the policy classes of the queue, in the
// format of NVIDIA Dynamo's router.
type policyFile string

// policyKeys are the keys of such a file, which router.queue has under the same names.
type policyKeys struct {
	DefaultFamily string                `koanf:"default_policy_family"`
	Buckets       []stator.BucketConfig `koanf:"uncached_isl_buckets"`
	Classes       []stator.ClassConfig  `koanf:"policy_classes"`
}

func parsePolicyFile(text string) (any, error) {
	if text == "" {
		return nil, errors.New("expected a file")
	}
	return policyFile(text), nil
}

// read reads the file. What is wrong with its content is in the problems of what it
// returns.
func (p policyFile) read() (*file, error) {
	data, err := os.ReadFile(string(p))
	if err != nil {
		return nil, err
	}
	f := &file{name: string(p), origins: make(origins), merging: make(map[*yaml.Node]bool)}
	f.refused = map[string]string{
		"router.queue.models": "classes by model are not supported; all models have the same",
	}
	f.parse(data, reflect.TypeFor[policyKeys](), "router.queue")
	return f, nil
}

// apply lays the classes of f over k in the place of those there are, and notes where
// they are from.
func (p policyFile) apply(k *koanf.Koanf, from origins, f *file) error {
	for field := range fields(reflect.TypeFor[policyKeys]()) {
		name := field.Tag.Get("koanf")
		value, ok := f.values[name]
		if !ok {
			value = reflect.Zero(field.Type).Interface()
		}
		key := join("router.queue", name)
		if err := k.Set(key, value); err != nil {
			return err
		}
		from.set(key, origin{source: string(p)})
	}
	maps.Copy(from, f.origins)
	return nil
}
