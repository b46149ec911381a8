// Command operator is the operator under comparison, on controller-runtime.
package main

import (
	"context"
	"maps"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const concurrency = 16

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(); err != nil {
		ctrl.Log.Error(err, "the operator ends")
		os.Exit(1)
	}
}

func run() error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	options := ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		// Reads after a write wait for the cache, as Evenkeel's passes do.
		Client: client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
	}
	// With any value, what is cached has no `managedFields`. controller-runtime caches them by default.
	if _, drops := os.LookupEnv("DROP_MANAGED_FIELDS"); drops {
		options.Cache.DefaultTransform = cache.TransformStripManagedFields()
	}
	// GetConfig sets no client-side rate limit.
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&Gadget{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(reconcile.AsReconciler(manager.GetClient(), &reconciler{manager.GetClient()}))
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

type reconciler struct{ client client.Client }

func (r *reconciler) Reconcile(ctx context.Context, gadget *Gadget) (ctrl.Result, error) {
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: gadget.Namespace, Name: gadget.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.client, child, func() error {
		child.Data = gadget.data()
		return controllerutil.SetControllerReference(gadget, child, r.client.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	status := GadgetStatus{ObservedGeneration: gadget.Generation, Child: child.Name}
	if gadget.Status == status {
		return ctrl.Result{}, nil
	}
	before := gadget.DeepCopy()
	gadget.Status = status
	return ctrl.Result{}, r.client.Status().Patch(ctx, gadget, client.MergeFrom(before))
}

// data returns the data of the child.
func (g *Gadget) data() map[string]string {
	data := map[string]string{"message": g.Spec.Message, "size": strconv.Itoa(int(g.Spec.Size))}
	maps.Copy(data, g.Spec.Options)
	return data
}
