package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"

	"github.com/stator-ai/stator"
)

// source says where the configuration comes from. Later wins over earlier:
// defaults, file, environment, flags.
type source struct {
	file   string              // path of the YAML file; empty for none
	getenv func(string) string // an empty variable counts as not set
	dynamo []assignment        // from DYN_* variables, below STATOR_*
	flags  []assignment
}

// assignment sets one key.
type assignment struct {
	key   string
	value any    // of the type of the setting, or a port, tokenizerRefs, several, or policyFile
	from  string // the flag or variable, for messages
}

// several are assignments that one flag or variable stands for.
type several []assignment

// expand replaces several by what it stands for.
func expand(list []assignment) []assignment {
	var out []assignment
	for _, a := range list {
		inner, ok := a.value.(several)
		if !ok {
			out = append(out, a)
		}
		for _, b := range inner {
			out = append(out, assignment{b.key, b.value, a.from})
		}
	}
	return out
}

// port changes the port of an address and leaves the host.
type port uint16

// configError is a configuration that cannot be used.
type configError struct {
	problems []problem
}

func (e *configError) Error() string {
	if len(e.problems) == 1 {
		return "configuration: " + e.problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "configuration has %d problems:", len(e.problems))
	for _, p := range e.problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// load puts the configuration together and validates it. The error is a
// *configError unless the file could not be read.
func load(src source) (stator.Config, error) {
	cfg := stator.DefaultConfig()
	k := koanf.New(".")
	from := make(origins)
	var problems []problem

	if src.file != "" {
		data, err := os.ReadFile(src.file)
		if err != nil {
			return cfg, fmt.Errorf("configuration: %w", err)
		}
		f := parseFile(src.file, data)
		from, problems = f.origins, f.problems
		if err := k.Load(confmap.Provider(f.values, ""), nil); err != nil {
			return cfg, fmt.Errorf("configuration: %w", err)
		}
	}
	for _, a := range expand(slices.Concat(src.dynamo, environment(src.getenv), src.flags)) {
		switch v := a.value.(type) {
		case port:
			a.value = v.of(k, cfg.Listen)
		case tokenizerRefs:
			if err := v.apply(k, from, a.from); err != nil {
				return cfg, fmt.Errorf("configuration: %s: %w", a.from, err)
			}
			continue
		case policyFile:
			f, err := v.read()
			if err != nil {
				return cfg, fmt.Errorf("configuration: %s: %w", a.from, err)
			}
			problems = append(problems, f.problems...)
			if err := v.apply(k, from, f); err != nil {
				return cfg, fmt.Errorf("configuration: %s: %w", a.from, err)
			}
			continue
		}
		if err := k.Set(a.key, a.value); err != nil {
			return cfg, fmt.Errorf("configuration: %s: %w", a.from, err)
		}
		from.set(a.key, origin{source: a.from})
	}
	if err := decode(k, &cfg); err != nil {
		return cfg, fmt.Errorf("configuration: %w", err)
	}
	addSecrets(&cfg, src.getenv)

	var invalid *stator.ConfigError
	if err := cfg.Validate(); errors.As(err, &invalid) {
		for _, p := range invalid.Problems {
			problems = append(problems, problem{from.of(p.Key), p})
		}
	}
	if problems != nil {
		// In the order of each file; what was said elsewhere first.
		slices.SortStableFunc(problems, func(a, b problem) int {
			if a.where.line == 0 || b.where.line == 0 {
				return cmp.Compare(a.where.line, b.where.line)
			}
			return cmp.Or(cmp.Compare(a.where.source, b.where.source), cmp.Compare(a.where.line, b.where.line))
		})
		return cfg, &configError{problems}
	}
	return cfg, nil
}

// decode lays the values of k, which have the types of their settings, over cfg.
func decode(k *koanf.Koanf, cfg *stator.Config) error {
	return k.UnmarshalWithConf("", cfg, koanf.UnmarshalConf{
		DecoderConfig: &mapstructure.DecoderConfig{ErrorUnused: true, Result: cfg},
	})
}

// of returns the listen address so far with the port p.
func (p port) of(k *koanf.Koanf, listen string) string {
	if k.Exists("listen") {
		listen = k.String("listen")
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return listen // the validation says what is wrong with it
	}
	return net.JoinHostPort(host, strconv.Itoa(int(p)))
}

// environment returns the addresses that are set by variables.
func environment(getenv func(string) string) []assignment {
	var out []assignment
	for _, e := range []struct{ name, key string }{
		{"STATOR_LISTEN", "listen"},
		{"STATOR_ADMIN_LISTEN", "admin_listen"},
	} {
		if text := getenv(e.name); text != "" {
			out = append(out, assignment{e.key, text, e.name})
		}
	}
	return out
}

// addSecrets adds the keys that are in variables: STATOR_API_KEY lets clients in
// with every right, unless the file has that key with rights of its own, and
// STATOR_ENGINE_API_KEY goes to the engines that have no key.
func addSecrets(cfg *stator.Config, getenv func(string) string) {
	if key := getenv("STATOR_API_KEY"); key != "" {
		hash := hashKey(key)
		if !slices.ContainsFunc(cfg.Keys, func(k stator.KeyConfig) bool { return strings.EqualFold(k.SHA256, hash) }) {
			cfg.Keys = append(cfg.Keys, stator.KeyConfig{Name: "STATOR_API_KEY", SHA256: hash, Trusted: true, Admin: true})
		}
	}
	if key := getenv("STATOR_ENGINE_API_KEY"); key != "" {
		for i := range cfg.Engines {
			if cfg.Engines[i].APIKey == "" {
				cfg.Engines[i].APIKey = key
			}
		}
	}
}

func hashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
