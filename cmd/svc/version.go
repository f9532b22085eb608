package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is the version of the tool: of its module, or the commit that it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return s.Value[:12]
		}
	}
	return "devel"
}

type versionView struct {
	outcome
	Version string `json:"version"`
	Go      string `json:"go"`
	System  string `json:"system"`
}

func (v *versionView) table() table {
	return line("svc " + v.Version + " (" + v.Go + ", " + v.System + ")")
}

func (v *versionView) names() []string { return []string{v.Version} }

func (t *tool) versionCommand() *command {
	return &command{
		Command: &cobra.Command{Use: "version", Short: "show the version of this program"},
		empty:   func() view { return &versionView{} },
		run: func(context.Context, []string) (view, error) {
			return &versionView{Version: version(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}, nil
		},
	}
}
