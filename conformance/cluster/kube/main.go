// One binary with the parts of a Kubernetes cluster: compiled together, they share their packages.
//
// The part is the last element of argv[0], otherwise the first argument.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// parts maps the name of a part to its main function. Each file of this package adds its own.
var parts = map[string]func(){}

func cobraPart(make func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(make())) }
}

func main() {
	if run, ok := parts[filepath.Base(os.Args[0])]; ok {
		run()
		return
	}
	if len(os.Args) > 1 {
		if run, ok := parts[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			run()
			return
		}
	}
	names := make([]string, 0, len(parts))
	for name := range parts {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintln(os.Stderr, "usage: kube PART [ARG...]; parts:", names)
	os.Exit(2)
}
