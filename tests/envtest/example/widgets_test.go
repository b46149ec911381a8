// Package example tests custom resources as the tests of an operator do.
package example

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

func widget(name string, size int64) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": size}}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	object.SetNamespace("default")
	object.SetName(name)
	return object
}

func TestWidgets(t *testing.T) {
	environment := &envtest.Environment{CRDDirectoryPaths: []string{"../../clients/crds"}, ErrorIfCRDPathMissing: true}
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	}()
	admin, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}

	small := widget("small", 1)
	if err := admin.Create(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	if color, _, _ := unstructured.NestedString(small.Object, "spec", "color"); color != "blue" {
		t.Errorf("color is %q: the schema's default was not applied", color)
	}
	if err := admin.Create(t.Context(), widget("none", 0)); !apierrors.IsInvalid(err) {
		t.Errorf("a size of 0 is not refused as invalid: %v", err)
	}

	// RBAC grants nothing to a new user.
	alice, err := environment.AddUser(envtest.User{Name: "alice", Groups: []string{"devs"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	hers, err := client.New(alice.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := hers.Create(t.Context(), widget("hers", 1)); !apierrors.IsForbidden(err) {
		t.Errorf("alice may create widgets: %v", err)
	}
}
