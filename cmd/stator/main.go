// Command stator is the control plane in front of a fleet of LLM engines.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// run executes one command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "stator: %v\n", err)
	var usage *usageError
	if errors.As(err, &usage) {
		if usage.hint {
			fmt.Fprintf(stderr, "run '%s --help' for usage\n", cmd.CommandPath())
		}
		return exitUsage
	}
	return exitFailure
}

func rootCommand() *cobra.Command {
	root := group(&cobra.Command{
		Use:   "stator",
		Short: "Place requests on a fleet of LLM engines",
		Long: `stator stands in front of a fleet of LLM engines (vLLM, SGLang, llama.cpp and
others with an OpenAI-style API), speaks the OpenAI API with nvext extensions,
and decides which engine runs which request.`,
		Example: `  stator serve --sim 4                                # no GPU needed
  stator serve --engine http://gpu1:8000 --engine http://gpu2:8000`,
		SilenceErrors: true,
		SilenceUsage:  true,
	})
	root.Version, _ = buildVersion()
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &usageError{err: err, hint: true}
	})
	root.AddCommand(serveCommand(), simCommand(), indexCommand(), configCommand(), traceCommand(), trieCommand(), tokenizeCommand(), doctorCommand(), metricsCommand(), policyCommand(), hintsCommand(), versionCommand(), manCommand())
	return root
}

// group completes a command that only has subcommands: alone it prints its help,
// and an unknown subcommand is an error.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		msg := fmt.Sprintf("unknown command %q", args[0])
		if cmd.SuggestionsMinimumDistance <= 0 {
			cmd.SuggestionsMinimumDistance = 2
		}
		if near := closest(args[0], cmd.SuggestionsFor(args[0])); len(near) > 0 {
			msg += fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
		}
		return &usageError{err: errors.New(msg), hint: true}
	}
	return cmd
}

// closest returns those of the names that are most like what was typed.
func closest(typed string, names []string) []string {
	best := -1
	var out []string
	for _, name := range names {
		d := editDistance(typed, name)
		if best < 0 || d < best {
			best, out = d, nil
		}
		if d == best {
			out = append(out, name)
		}
	}
	return out
}

// atMost returns an argument check that is a usage error beyond n.
func atMost(n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return &usageError{err: fmt.Errorf("unexpected argument %q", args[n]), hint: true}
		}
		return nil
	}
}

// usageError is a command line that cannot be meant.
type usageError struct {
	err  error
	hint bool // point to --help
}

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }
