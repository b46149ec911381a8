//! Variables and fields that expressions can read in each place, by type.

use crate::generate::Scope;

/// Scope of rules of custom resources: a value of `value_schema`.
pub(crate) static VALUE: Scope = Scope {
    leaves: &[
        (
            "bool",
            &[
                "self.b",
                "has(self.s)",
                "has(self.o.deep)",
                "has(self.missing)",
                "self.o.deep.x > 1",
                "oldSelf.b",
                "self == oldSelf",
                "self.s == oldSelf.s",
                "self.lo.exists(e, e.k == 'a')",
                "self.lo == oldSelf.lo",
            ],
        ),
        (
            "int",
            &[
                "self.n",
                "self.o.n",
                "self.o.deep.x",
                "self.li[0]",
                "size(self.lo)",
                "oldSelf.n",
                "self.mi.a",
                "size(self.s)",
                "size(self.un)",
            ],
        ),
        ("double", &["self.d", "oldSelf.d"]),
        (
            "string",
            &[
                "self.s",
                "self.o.s",
                "self.ls[0]",
                "self.ms.a",
                "self.un",
                "self.a__dash__b",
                "self.namespace",
                "self.__namespace__",
                "self.e",
                "self.lo[0].k",
                "oldSelf.s",
                "self.kind",
                "self.metadata.name",
            ],
        ),
        ("bytes", &["self.by"]),
        ("time", &["self.t", "oldSelf.t", "self.day"]),
        ("duration", &["self.du"]),
        ("ints", &["self.li", "oldSelf.li", "self.lo.map(e, e.v)", "self.st"]),
        ("strings", &["self.ls", "self.ul", "self.lo.map(e, e.k)"]),
        ("texts", &["self.ms"]),
        ("numbers", &["self.mi"]),
        ("any", &["self.io", "self.lo", "self.o", "self", "self.li", "self.ms", "self.t"]),
    ],
};

/// Scope of policies and webhooks.
pub(crate) static REQUEST: Scope = Scope {
    leaves: &[
        (
            "bool",
            &[
                "object.a",
                "has(object.spec.a)",
                "request.dryRun",
                "has(request.userInfo.extra)",
                "namespaceObject == null",
                "oldObject == null",
                "authorizer.group('').resource('pods').check('get').allowed()",
                "authorizer.requestResource.check('x').allowed()",
                "authorizer.path('/a').check('get').errored()",
                "variables.flag",
                "params.flag",
            ],
        ),
        (
            "int",
            &[
                "object.n",
                "object.metadata.generation",
                "size(request.userInfo.groups)",
                "namespaceObject.metadata.generation",
                "variables.count",
                "params.n",
            ],
        ),
        ("double", &["object.d"]),
        (
            "string",
            &[
                "object.metadata.name",
                "request.name",
                "request.namespace",
                "request.userInfo.username",
                "request.operation",
                "request.kind.kind",
                "request.resource.resource",
                "namespaceObject.metadata.name",
                "object.data.a",
                "variables.text",
                "authorizer.path('/a').check('get').reason()",
                "params.data.a",
            ],
        ),
        ("time", &["namespaceObject.metadata.creationTimestamp"]),
        (
            "strings",
            &[
                "request.userInfo.groups",
                "object.metadata.finalizers",
                "namespaceObject.metadata.finalizers",
            ],
        ),
        ("texts", &["namespaceObject.metadata.labels", "object.metadata.labels"]),
        ("ints", &["object.list", "variables.list"]),
        (
            "any",
            &[
                "object",
                "oldObject.spec",
                "request.options",
                "request",
                "namespaceObject",
                "authorizer",
                "request.userInfo.extra",
                "variables",
            ],
        ),
    ],
};

/// Scope of selectors of devices.
pub(crate) static DEVICE: Scope = Scope {
    leaves: &[
        (
            "bool",
            &[
                "device.attributes['a.b'].flag",
                "'a.b' in device.attributes",
                "device.allowMultipleAllocations",
                "has(device.attributes['a.b'].x)",
                "device.driver == 'a.b'",
                "cel.bind(d, device.attributes['a.b'], d.flag && d.n > 1)",
                "device.attributes['a.b'].list.includes('x')",
                "device.attributes['a.b'].exists(k, k == 'x')",
            ],
        ),
        ("int", &["device.attributes['a.b'].n", "size(device.attributes)", "size(device.driver)"]),
        (
            "string",
            &["device.driver", "device.attributes['a.b'].s", "device.attributes['a.b']['s']"],
        ),
        ("quantity", &["device.capacity['a.b'].memory", "device.capacity['a.b']['memory']"]),
        ("semver", &["device.attributes['a.b'].version"]),
        (
            "any",
            &[
                "device",
                "device.attributes",
                "device.capacity['a.b']",
                "device.attributes['a.b'].x",
            ],
        ),
    ],
};
