package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version and commit are set by the linker: -X main.version=v1.2.3.
var version, commit string

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  atMost(0),
		Run: func(cmd *cobra.Command, _ []string) {
			v, commit := buildVersion()
			fmt.Fprintf(cmd.OutOrStdout(), "stator %s, commit %s, %s %s/%s\n",
				v, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}

// buildVersion returns the version and the commit of this program.
func buildVersion() (v, rev string) {
	info, _ := debug.ReadBuildInfo()
	v, rev = describeBuild(version, info)
	return v, cmp.Or(commit, rev)
}

// describeBuild returns the version and the commit of a build: what the linker
// stamped, else what the build recorded about itself.
func describeBuild(stamped string, info *debug.BuildInfo) (v, commit string) {
	v, commit = stamped, "unknown"
	if info != nil {
		if v == "" && info.Main.Version != "(devel)" {
			v = info.Main.Version
		}
		modified := false
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				commit = s.Value[:min(12, len(s.Value))]
			case "vcs.modified":
				modified = s.Value == "true"
			}
		}
		if modified && commit != "unknown" {
			commit += " (modified)"
		}
	}
	if v == "" {
		v = "devel"
	}
	return v, commit
}
