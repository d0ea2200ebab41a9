package main

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// settings are the flags of a command that set a key of the configuration.
type settings struct {
	cmd     *cobra.Command
	flags   []*settingFlag
	refused []*refusedFlag // of the command, beside them
}

// settingFlag is the value of one such flag.
type settingFlag struct {
	flag  *pflag.Flag
	key   string
	parse func(text string) (any, error)
	text  string
	value any
	from  string // the flag that set it last, itself or its opposite; empty if none did
}

func (s *settingFlag) String() string { return s.text }

// Type is shown nowhere, because each usage text names its value, but for "bool",
// which says that the flag needs none.
func (s *settingFlag) Type() string {
	if s.key != "" && settingType(s.key).Kind() == reflect.Bool {
		return "bool"
	}
	return "value"
}

func (s *settingFlag) Set(text string) error {
	v, err := s.parse(text)
	if err == nil {
		s.text, s.value, s.from = text, v, "--"+s.flag.Name
	}
	return err
}

// add declares the flag of a scalar setting. The usage text has the name of the
// value in backquotes; the default is that of the configuration.
func (s *settings) add(name, key, usage string) *settingFlag {
	t := settingType(key)
	f := s.addParsed(name, key, usage, func(text string) (any, error) { return parseValue(t, text) })
	f.flag.DefValue = defaultText(key)
	if t.Kind() == reflect.Bool {
		f.flag.NoOptDefVal = "true"
	}
	return f
}

// addParsed is add with another reading of the text and no default.
func (s *settings) addParsed(name, key, usage string, parse func(string) (any, error)) *settingFlag {
	f := &settingFlag{key: key, parse: parse}
	f.flag = s.cmd.Flags().VarPF(f, name, "", usage)
	s.flags = append(s.flags, f)
	return f
}

// opposite declares --no-NAME beside the flag of a bool; help does not show it. Of the
// two the one given last counts.
func (f *settingFlag) opposite(cmd *cobra.Command) {
	no := cmd.Flags().VarPF(&oppositeFlag{f}, "no-"+f.flag.Name, "", "")
	no.Hidden, no.NoOptDefVal = true, "true"
}

// oppositeFlag is the value of the flag that takes a bool back.
type oppositeFlag struct{ of *settingFlag }

func (o *oppositeFlag) String() string { return "" }

func (o *oppositeFlag) Type() string { return "bool" }

func (o *oppositeFlag) Set(text string) error {
	v, err := parseBool(text)
	if err == nil {
		o.of.value, o.of.from = !v, "--no-"+o.of.flag.Name
	}
	return err
}

// choices offers values to shell completion.
func (f *settingFlag) choices(cmd *cobra.Command, values ...string) {
	// The error is about a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc(f.flag.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// given returns what the command line sets.
func (s *settings) given() []assignment {
	var out []assignment
	for _, f := range s.flags {
		if f.from != "" {
			out = append(out, assignment{f.key, f.value, f.from})
		}
	}
	return out
}

// alias makes other names of flags mean the same.
func alias(fs *pflag.FlagSet, names map[string]string) {
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if canonical, ok := names[name]; ok {
			name = canonical
		}
		return pflag.NormalizedName(name)
	})
}

// engineURLs is the value of a flag that may be given several times: a URL, and after
// commas settings of the engine such as events=gpu1:5557.
type engineURLs []string

// engineSettings are those that can follow a URL.
var engineSettings = []string{"kind", "events", "replay", "topic"}

func (u *engineURLs) String() string { return "" }

func (u *engineURLs) Type() string { return "url" }

func (u *engineURLs) Set(text string) error {
	parts := strings.Split(text, ",")
	// The error repeats the text, which must not hold a password.
	if _, err := url.Parse(parts[0]); err != nil && !strings.Contains(text, "@") {
		return errors.New("expected a base URL such as http://127.0.0.1:8000")
	}
	for _, part := range parts[1:] {
		key, value, ok := strings.Cut(part, "=")
		if !ok || value == "" || !slices.Contains(engineSettings, key) {
			return fmt.Errorf("expected URL[,%s=…], got %q after the URL", strings.Join(engineSettings, "=…,"), part)
		}
	}
	*u = append(*u, text)
	return nil
}

// assignment returns the engines key, or nothing without a URL.
func (u engineURLs) assignment() []assignment {
	if len(u) == 0 {
		return nil
	}
	engines := make([]any, len(u))
	for i, text := range u {
		parts := strings.Split(text, ",")
		engine := map[string]any{"url": parts[0]}
		for _, part := range parts[1:] {
			key, value, _ := strings.Cut(part, "=")
			engine[key] = value
		}
		engines[i] = engine
	}
	return []assignment{{"engines", engines, "--engine"}}
}

// tokenizerRefs is the value of the flag that names tokenizers, each for one model or
// for all others.
type tokenizerRefs []tokenizerRef

type tokenizerRef struct{ model, ref string }

func (t *tokenizerRefs) String() string { return "" }

func (t *tokenizerRefs) Type() string { return "ref" }

func (t *tokenizerRefs) Set(text string) error {
	model, ref, ok := strings.Cut(text, "=")
	if !ok {
		model, ref = "*", text
	}
	if model == "" || ref == "" {
		return errors.New("expected REF or MODEL=REF")
	}
	*t = append(*t, tokenizerRef{model, ref})
	return nil
}

// assignment returns the models key, or nothing if the flag was not given.
func (t tokenizerRefs) assignment() []assignment {
	if len(t) == 0 {
		return nil
	}
	return []assignment{{"models", t, "--tokenizer"}}
}

// apply lays the tokenizers over the models of k, which keep their other settings,
// and notes what the flag has set.
func (t tokenizerRefs) apply(k *koanf.Koanf, from origins, flag string) error {
	models, _ := k.Get("models").([]any)
	models = slices.Clone(models)
	for _, ref := range t {
		i := slices.IndexFunc(models, func(m any) bool {
			entry, _ := m.(map[string]any)
			return entry["name"] == ref.model
		})
		if i < 0 {
			i = len(models)
			models = append(models, map[string]any{"name": ref.model})
			from.set(fmt.Sprintf("models[%d]", i), origin{source: flag})
		}
		entry := maps.Clone(models[i].(map[string]any))
		entry["tokenizer"] = ref.ref
		models[i] = entry
		from.set(fmt.Sprintf("models[%d].tokenizer", i), origin{source: flag})
	}
	return k.Set("models", models)
}
