package main

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stator-ai/stator"
)

func configCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "config",
		Short: "Check configuration files and make API keys",
	})
	cmd.AddCommand(configCheckCommand(), newKeyCommand())
	return cmd
}

func configCheckCommand() *cobra.Command {
	var printed bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration file",
		Long: `Check a configuration file (or that of STATOR_CONFIG) together with the STATOR_*
environment, and say everything that is wrong with it.`,
		Example: `  stator config check stator.yaml
  stator config check --print stator.yaml             # with all defaults filled in`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			src := source{file: os.Getenv("STATOR_CONFIG"), getenv: os.Getenv}
			if len(args) == 1 {
				src.file = args[0]
			}
			if src.file == "" {
				return &usageError{err: errors.New("expected a file, as an argument or in STATOR_CONFIG"), hint: true}
			}
			cfg, err := load(src)
			if err != nil {
				return err
			}
			if cfg.TLS.Cert != "" {
				if _, err := tls.LoadX509KeyPair(cfg.TLS.Cert, cfg.TLS.Key); err != nil {
					return fmt.Errorf("tls: load %s and %s: %w", cfg.TLS.Cert, cfg.TLS.Key, err)
				}
			}
			if err := cfg.CheckTokenizers(cmd.Context()); err != nil {
				return err
			}
			if len(cfg.Engines)+cfg.Sim.Engines == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: no engines: serve needs --engine or --sim as well")
			}
			for _, w := range cfg.Warnings() {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
			}
			if printed {
				text, err := printConfig(&cfg)
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "ok: %s\n", summary(&cfg))
			return nil
		},
	}
	cmd.Flags().BoolVar(&printed, "print", false, "print the configuration in force as YAML, without secrets")
	return cmd
}

// summary returns what a configuration comes to in one line.
func summary(cfg *stator.Config) string {
	parts := []string{"listen " + cfg.Listen}
	if cfg.AdminListen != "" {
		parts = append(parts, "admin "+cfg.AdminListen)
	}
	if n := len(cfg.Engines); n > 0 || cfg.Sim.Engines == 0 {
		parts = append(parts, count(n, "engine"))
	}
	if n := cfg.Sim.Engines; n > 0 {
		parts = append(parts, count(n, "simulated engine"))
	}
	parts = append(parts, "router mode "+cfg.Router.Mode, count(len(cfg.Keys), "key"))
	return strings.Join(parts, ", ")
}

func newKeyCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "new-key",
		Short: "Make an API key",
		Long: `Make a random API key. The key is printed once, on the first line; the lines
after it are for the configuration file, which holds only its hash.`,
		Example: `  stator config new-key --name alice`,
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.TrimSpace(name) == "" {
				return &usageError{err: errors.New("--name: expected a name to tell the key by"), hint: true}
			}
			secret := make([]byte, 32)
			rand.Read(secret) // never fails
			key := "sk-stator-" + base64.RawURLEncoding.EncodeToString(secret)
			lines, err := encodeYAML(keysEntry{Keys: []keyEntry{{name, hashKey(key)}}})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", key, lines)
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "default", "`NAME` of the key, for logs")
	return cmd
}

// keysEntry is the part of a configuration file that lets a key in.
type keysEntry struct {
	Keys []keyEntry `yaml:"keys"`
}

type keyEntry struct {
	Name   string `yaml:"name"`
	SHA256 string `yaml:"sha256"`
}
