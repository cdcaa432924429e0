package main

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

// Annotations of a pod that tell the fake node what to report of it.
const (
	// The exit code of all containers, in place of running.
	exitAnnotation = "fake-node/exit"
	// "true" leaves the pod pending, as if its image were still being pulled.
	holdAnnotation = "fake-node/hold"
)

func init() { parts["fake-node"] = fakeNode }

// fakeNode is a node that runs nothing and reports its pods as running and ready at once.
func fakeNode() {
	flags := flag.NewFlagSet("fake-node", flag.ExitOnError)
	config := flags.String("kubeconfig", "", "")
	name := flags.String("name", "fake-0", "")
	_ = flags.Parse(os.Args[1:])
	rest, err := clientcmd.BuildConfigFromFlags("", *config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	rest.QPS, rest.Burst = 500, 1000
	client := kubernetes.NewForConfigOrDie(rest)
	ctx := context.Background()
	go func() {
		for ; ; time.Sleep(5 * time.Second) {
			if err := beat(ctx, client, *name); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *meta.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", *name).String()
	}))
	see := func(object any) {
		if pod, ok := object.(*core.Pod); ok {
			if err := report(ctx, client, pod); err != nil && !errors.IsNotFound(err) && !errors.IsConflict(err) {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
	_, _ = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, object any) { see(object) },
	})
	factory.Start(ctx.Done())
	select {}
}

// beat keeps the node and its lease ready, and creates both at first.
func beat(ctx context.Context, client kubernetes.Interface, name string) error {
	node, err := client.CoreV1().Nodes().Get(ctx, name, meta.GetOptions{})
	if errors.IsNotFound(err) {
		node, err = client.CoreV1().Nodes().Create(ctx, &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{
			"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "node/fake": ""}}}, meta.CreateOptions{})
	}
	if err != nil {
		return err
	}
	now := meta.Now()
	node.Status.Capacity = core.ResourceList{
		core.ResourceCPU: resource.MustParse("640"), core.ResourceMemory: resource.MustParse("2560Gi"), core.ResourcePods: resource.MustParse("10000"),
	}
	node.Status.Allocatable = node.Status.Capacity
	node.Status.Conditions = []core.NodeCondition{{
		Type: core.NodeReady, Status: core.ConditionTrue, Reason: "Fake", LastHeartbeatTime: now, LastTransitionTime: node.CreationTimestamp,
	}}
	if _, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, meta.UpdateOptions{}); err != nil {
		return err
	}
	leases := client.CoordinationV1().Leases("kube-node-lease")
	spec := coordination.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: ptr.To(int32(40)), RenewTime: ptr.To(meta.NewMicroTime(now.Time))}
	lease, err := leases.Get(ctx, name, meta.GetOptions{})
	if errors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: name}, Spec: spec}, meta.CreateOptions{})
	} else if err == nil {
		lease.Spec = spec
		_, err = leases.Update(ctx, lease, meta.UpdateOptions{})
	}
	return err
}

// report writes the status that the pod's annotations ask for, or removes a pod that is being deleted.
func report(ctx context.Context, client kubernetes.Interface, pod *core.Pod) error {
	pods := client.CoreV1().Pods(pod.Namespace)
	if pod.DeletionTimestamp != nil {
		return pods.Delete(ctx, pod.Name, meta.DeleteOptions{
			GracePeriodSeconds: ptr.To(int64(0)), Preconditions: &meta.Preconditions{UID: &pod.UID},
		})
	}
	exit, ends := pod.Annotations[exitAnnotation]
	phase := core.PodRunning
	if ends {
		if phase = core.PodFailed; exit == "0" {
			phase = core.PodSucceeded
		}
	}
	if pod.Status.Phase == phase || pod.Annotations[holdAnnotation] == "true" {
		return nil
	}
	pod = pod.DeepCopy()
	pod.Status = status(pod, phase, exit, ends)
	_, err := pods.UpdateStatus(ctx, pod, meta.UpdateOptions{})
	return err
}

func status(pod *core.Pod, phase core.PodPhase, exit string, ends bool) core.PodStatus {
	now := meta.Now()
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(pod.UID))
	address := fmt.Sprintf("10.245.%d.%d", hash.Sum32()>>8&0xff, hash.Sum32()&0xff)
	status := pod.Status
	status.Phase, status.StartTime, status.PodIP, status.PodIPs = phase, &now, address, []core.PodIP{{IP: address}}
	ready := core.ConditionTrue
	if ends {
		ready = core.ConditionFalse
	}
	status.Conditions = []core.PodCondition{
		{Type: core.PodScheduled, Status: core.ConditionTrue, LastTransitionTime: now},
		{Type: core.PodInitialized, Status: core.ConditionTrue, LastTransitionTime: now},
		{Type: core.ContainersReady, Status: ready, LastTransitionTime: now},
		{Type: core.PodReady, Status: ready, LastTransitionTime: now},
	}
	status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		state := core.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: "fake", ContainerID: fmt.Sprintf("fake://%s-%s", pod.UID, container.Name),
			Ready: !ends, Started: ptr.To(!ends), Resources: &container.Resources, AllocatedResources: container.Resources.Requests,
		}
		if ends {
			code, _ := strconv.Atoi(exit)
			state.State.Terminated = &core.ContainerStateTerminated{ExitCode: int32(code), StartedAt: now, FinishedAt: now, Reason: "Fake"}
		} else {
			state.State.Running = &core.ContainerStateRunning{StartedAt: now}
		}
		status.ContainerStatuses = append(status.ContainerStatuses, state)
	}
	return status
}
