package main

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// Gadget is the custom resource.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GadgetSpec   `json:"spec,omitempty"`
	Status            GadgetStatus `json:"status,omitempty"`
}

// GadgetSpec is the desired state of a gadget.
type GadgetSpec struct {
	Message string            `json:"message"`
	Size    int32             `json:"size"`
	Options map[string]string `json:"options,omitempty"`
}

// GadgetStatus is the observed state of a gadget.
type GadgetStatus struct {
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	Child              string `json:"child,omitempty"`
}

// GadgetList is a list of gadgets.
type GadgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gadget `json:"items"`
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	version := schema.GroupVersion{Group: "bench.example.com", Version: "v1"}
	scheme.AddKnownTypes(version, &Gadget{}, &GadgetList{})
	metav1.AddToGroupVersion(scheme, version)
	return scheme, clientgoscheme.AddToScheme(scheme)
}

// The following is what controller-gen generates.

func (in *Gadget) DeepCopyInto(out *Gadget) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Options = maps.Clone(in.Spec.Options)
}

func (in *Gadget) DeepCopy() *Gadget {
	out := new(Gadget)
	in.DeepCopyInto(out)
	return out
}

func (in *Gadget) DeepCopyObject() runtime.Object { return in.DeepCopy() }

func (in *GadgetList) DeepCopyObject() runtime.Object {
	out := &GadgetList{TypeMeta: in.TypeMeta, Items: make([]Gadget, len(in.Items))}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range in.Items {
		in.Items[i].DeepCopyInto(&out.Items[i])
	}
	return out
}
