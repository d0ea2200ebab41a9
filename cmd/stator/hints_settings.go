package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/stator-ai/stator/hints"
)

// hintFlag is the value of a flag that is a setting of hints.
type hintFlag struct {
	name  string
	apply func(*hints.Config, string) error
	text  string
	given bool
}

func (f *hintFlag) String() string { return f.text }

// Type is shown nowhere, because each usage text names its value.
func (f *hintFlag) Type() string { return "value" }

// Set refuses what the setting cannot be.
func (f *hintFlag) Set(text string) error {
	c := hints.DefaultConfig()
	if err := f.apply(&c, text); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		_, reason, _ := strings.Cut(err.Error(), ": ")                          // the flag is named already
		return errors.New(strings.Replace(reason, " or null,", " or none,", 1)) // as flags have it
	}
	f.text, f.given = text, true
	return nil
}

// addSettings declares the flags of settings of hints. What is not given is as in the file,
// or else has its default.
func (f *hintsFlags) addSettings(cmd *cobra.Command) {
	add := func(name, def, usage string, apply func(*hints.Config, string) error, words ...string) {
		s := &hintFlag{name: name, apply: apply}
		flag := cmd.Flags().VarPF(s, name, "", usage)
		flag.DefValue = def
		f.settings = append(f.settings, s)
		complete(cmd, name, words...)
	}
	whole := func(to func(*hints.Config) *int) func(*hints.Config, string) error {
		return func(c *hints.Config, text string) error {
			n, err := strconv.Atoi(text)
			if err != nil {
				return fmt.Errorf("expected a whole number, got %q", text)
			}
			*to(c) = n
			return nil
		}
	}
	d := hints.DefaultConfig()
	add("trie", "", "`FILE` that predictions come from, made by stator trie build", func(c *hints.Config, text string) error {
		c.TriePath = text
		return nil
	})
	add("osl", strconv.Itoa(d.OutputTokens), "`TOKENS` that answers have: a number, or LOW, MEDIUM or HIGH", func(c *hints.Config, text string) (err error) {
		c.OutputTokens, err = hints.ParseOutputTokens(text)
		return err
	}, "LOW", "MEDIUM", "HIGH")
	add("total-requests", strconv.Itoa(d.TotalRequests), "`NUMBER` of calls that share the beginning of their prompts", whole(func(c *hints.Config) *int { return &c.TotalRequests }))
	add("iat", strconv.Itoa(d.InterArrivalMS), "`MILLISECONDS` between two of them: a number, or LOW, MEDIUM or HIGH", func(c *hints.Config, text string) (err error) {
		c.InterArrivalMS, err = hints.ParseInterArrivalMS(text)
		return err
	}, "LOW", "MEDIUM", "HIGH")
	add("polarity", string(d.Polarity), "which way priorities count, `POLARITY`: direct, as Stator and Dynamo 1.1 have it, or complement", func(c *hints.Config, text string) error {
		c.Polarity = hints.Polarity(text)
		return nil
	}, string(hints.Direct), string(hints.Complement))
	add("carrier", string(d.Carrier), "members that hints are in, `CARRIER`: nat, strict or annotations", func(c *hints.Config, text string) error {
		c.Carrier = hints.Carrier(text)
		return nil
	}, string(hints.NAT), string(hints.Strict), string(hints.Annotations))
	add("cache-pin", string(d.CachePin), "what is asked of caches, `PIN`: ephemeral or none", func(c *hints.Config, text string) error {
		c.CachePin = hints.CachePin(orNone(text))
		return nil
	}, string(hints.Ephemeral), "none")
	add("cache-mode", string(d.CacheMode), "calls that ask it, `MODE`: always or first_only", func(c *hints.Config, text string) error {
		c.CacheMode = hints.CacheMode(text)
		return nil
	}, string(hints.Always), string(hints.FirstOnly))
	add("max-sensitivity", strconv.Itoa(d.MaxSensitivity), "highest latency sensitivity, `NUMBER`", whole(func(c *hints.Config) *int { return &c.MaxSensitivity }))
	add("fail", string(d.FailurePolicy), "what becomes of a call whose hints are out of bounds, `POLICY`: open moves them, closed refuses it", func(c *hints.Config, text string) error {
		c.FailurePolicy = hints.FailurePolicy(text)
		return nil
	}, string(hints.Open), string(hints.Closed))
	add("compat", "none", "`RELEASE` to send the values of: nat-1.5, nat-1.8 or none", func(c *hints.Config, text string) error {
		c.Compat = hints.Compat(orNone(text))
		return nil
	}, string(hints.NAT15), string(hints.NAT18), "none")
}

// orNone returns a word, or nothing for one that says so.
func orNone(word string) string {
	if word == "none" || word == "null" {
		return ""
	}
	return word
}

// complete has the shell offer words for a flag.
func complete(cmd *cobra.Command, flag string, words ...string) {
	if len(words) > 0 {
		// The error is about a flag that does not exist.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
}

// readHintsFile reads the settings of hints from a file that may have others as well.
// Hints are on unless it says otherwise. The warnings are about keys that look like a
// setting and are none.
func readHintsFile(name string) (cfg hints.Config, warnings []string, err error) {
	cfg = hints.DefaultConfig()
	cfg.Enable = true
	data, err := os.ReadFile(name)
	if err != nil {
		return cfg, nil, err
	}
	section, where, err := hintsSection(name, data)
	if err != nil {
		return cfg, nil, fmt.Errorf("%s: %w", where, err)
	}
	var keys map[string]yaml.Node
	if err := section.Decode(&keys); err != nil {
		return cfg, nil, fmt.Errorf("%s: %w", where, err)
	}
	known, found := hintSettings(), false
	for key := range keys {
		switch {
		case known[key]:
			found = true
		case strings.HasPrefix(key, "nvext_"):
			warnings = append(warnings, unknownSetting(where, key, known))
		}
	}
	slices.Sort(warnings)
	if !found {
		return cfg, append(warnings, where+": no setting of hints is in it"), nil
	}
	if err := section.Decode(&cfg); err != nil {
		return cfg, nil, fmt.Errorf("%s: %s", where, strings.TrimPrefix(err.Error(), "hints: "))
	}
	if _, told := keys["enable_nvext_hints"]; !told {
		cfg.Enable = true
	}
	return cfg, warnings, nil
}

// hintsSection returns the part of a YAML file that the settings of hints are in, and how
// to call it in messages.
func hintsSection(name string, data []byte) (section *yaml.Node, where string, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return &yaml.Node{Kind: yaml.MappingNode}, name, nil // nothing but comments
	} else if err != nil {
		return nil, name, err
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, name, errors.New("expected one YAML document")
	}
	if err := expectSettings(&doc); err != nil {
		return nil, name, err
	}
	var file struct {
		Hints yaml.Node
		LLMs  yaml.Node `yaml:"llms"`
	}
	if err := doc.Decode(&file); err != nil {
		return nil, name, err
	}
	if !file.Hints.IsZero() {
		return &file.Hints, name + ": hints", expectSettings(&file.Hints)
	}
	return dynamoSection(name, &doc, &file.LLMs)
}

// dynamoSection returns the LLM of type dynamo of a file of NeMo Agent Toolkit, or the whole
// file if it has no LLMs. With several it is not clear which is meant.
func dynamoSection(name string, doc, list *yaml.Node) (*yaml.Node, string, error) {
	var llms map[string]yaml.Node
	if list.Kind != yaml.MappingNode || list.Decode(&llms) != nil {
		return doc, name, nil
	}
	var found []string
	for llm, section := range llms {
		var is struct {
			Type string `yaml:"_type"`
		}
		if section.Decode(&is) == nil && is.Type == "dynamo" {
			found = append(found, llm)
		}
	}
	slices.Sort(found)
	switch len(found) {
	case 0:
		return doc, name, nil
	case 1:
		section := llms[found[0]]
		return &section, name + ": llms." + found[0], expectSettings(&section)
	}
	return nil, name, fmt.Errorf("llms: expected one of _type dynamo, got %s; put the settings below hints", strings.Join(found, ", "))
}

// expectSettings checks that names of settings are in a part of a file, or nothing is.
func expectSettings(n *yaml.Node) error {
	switch {
	case n.Kind == yaml.DocumentNode && len(n.Content) == 1:
		return expectSettings(n.Content[0])
	case n.Kind == yaml.AliasNode:
		return expectSettings(n.Alias)
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return nil
	case n.Kind != yaml.MappingNode:
		return fmt.Errorf("expected a mapping of settings, got %s", describeNode(n))
	}
	for i := 0; i < len(n.Content); i += 2 {
		if key := n.Content[i]; key.Kind != yaml.ScalarNode && key.Kind != yaml.AliasNode {
			return fmt.Errorf("line %d: expected the name of a setting, got %s", key.Line, describeNode(key))
		}
	}
	return nil
}

// describeNode says what a part of a YAML file is.
func describeNode(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a mapping"
	case yaml.ScalarNode:
		return fmt.Sprintf("%.80q", n.Value)
	}
	return "something else"
}

// hintSettings returns the names of settings of hints.
func hintSettings() map[string]bool {
	text, err := json.Marshal(hints.DefaultConfig())
	if err != nil {
		panic(err) // plain values can be marshalled
	}
	var settings map[string]any
	if err := json.Unmarshal(text, &settings); err != nil {
		panic(err)
	}
	known := map[string]bool{"prediction_trie_path": true, "max_sensitivity": true}
	for name := range settings {
		known[name] = true
	}
	return known
}

// unknownSetting says that there is no such setting, and which was probably meant.
func unknownSetting(where, key string, known map[string]bool) string {
	text := fmt.Sprintf("%s: %.80s: unknown setting", where, key)
	best, distance := "", len(key)/3+1
	for name := range known {
		if len(key) > 80 {
			break // no slip of the pen
		}
		if d := editDistance(key, name); d < distance || d == distance && name < best {
			best, distance = name, d
		}
	}
	if best != "" {
		text += "; did you mean " + best + "?"
	}
	return text
}
