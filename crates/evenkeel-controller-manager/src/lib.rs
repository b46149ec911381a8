//! The drop-in kube-controller-manager: options, descriptors, start order, serving.
