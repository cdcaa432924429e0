// gVisor's containerd shim with two differences.
//
// It starts without CAP_SYS_RESOURCE, which a container may lack: gVisor's fails when it cannot lower its OOM score. And
// it prints its bare address, which containerd 1.6 requires and later versions accept.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/sys"
	runsc "gvisor.dev/gvisor/pkg/shim/v1"
	_ "gvisor.dev/gvisor/pkg/shim/v1/plugin"
)

const sandboxID = "io.kubernetes.cri.sandbox-id"

func annotations(bundle string) (map[string]string, error) {
	b, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, err
	}
	var s struct {
		Annotations map[string]string `json:"annotations"`
	}
	return s.Annotations, json.Unmarshal(b, &s)
}

type manager struct{ shim.Manager }

// Start starts one shim for each pod. The runtime's configuration must have grouping = true.
func (m manager) Start(ctx context.Context, id string, opts shim.StartOpts) (shim.BootstrapParams, error) {
	var p shim.BootstrapParams
	ns, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return p, err
	}
	ann, err := annotations(".")
	if err != nil {
		return p, err
	}
	group := id
	if g := ann[sandboxID]; g != "" {
		group = g
	}
	address, err := shim.SocketAddress(ctx, opts.Address, group, opts.Debug)
	if err != nil {
		return p, err
	}
	p = shim.BootstrapParams{Version: 2, Address: address, Protocol: "ttrpc"}
	socket, err := shim.NewSocket(address)
	if err != nil {
		if !shim.SocketEaddrinuse(err) {
			return p, fmt.Errorf("shim socket: %w", err)
		}
		if shim.CanConnect(address) {
			return p, os.WriteFile("address", []byte(address), 0o644)
		}
		if err := shim.RemoveSocket(address); err != nil {
			return p, err
		}
		if socket, err = shim.NewSocket(address); err != nil {
			return p, err
		}
	}
	f, err := socket.File()
	if err != nil {
		return p, err
	}
	self, err := os.Executable()
	if err != nil {
		return p, err
	}
	args := []string{"-namespace", ns, "-address", opts.Address, "-id", id}
	if opts.Debug {
		args = append(args, "-debug")
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.ExtraFiles = []*os.File{f}
	if err := os.WriteFile("address", []byte(address), 0o644); err != nil {
		return p, err
	}
	if err := cmd.Start(); err != nil {
		socket.Close()
		_ = shim.RemoveSocket(address)
		return p, err
	}
	go func() { _ = cmd.Wait() }()
	if err := shim.WritePidFile("shim.pid", cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		return p, err
	}
	// No error message: containerd 1.6 reads stderr as part of the address.
	_ = sys.SetOOMScore(cmd.Process.Pid, -999)
	return p, nil
}

func main() {
	stdout := os.Stdout
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	os.Stdout = w
	shim.Run(context.Background(), manager{runsc.NewShimManager("io.containerd.runsc.v1")})
	// gVisor prints a JSON object.
	_ = w.Close()
	b, _ := io.ReadAll(r)
	var p shim.BootstrapParams
	if json.Unmarshal(b, &p) == nil && p.Address != "" {
		b = []byte(p.Address)
	}
	_, _ = stdout.Write(b)
}
