package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func init() {
	parts["etcd"] = func() { etcdmain.Main(os.Args) }
	parts["kube-apiserver"] = cobraPart(apiserver.NewAPIServerCommand)
	parts["kube-controller-manager"] = cobraPart(controllers.NewControllerManagerCommand)
	parts["kube-scheduler"] = cobraPart(func() *cobra.Command { return scheduler.NewSchedulerCommand() })
	parts["kubelet"] = cobraPart(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) })
	parts["kubectl"] = func() {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
		os.Exit(0)
	}
}
