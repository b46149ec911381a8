//! Accepted differences, each with its reason.

use crate::generate::Read;

/// A class of differences.
struct Accepted {
    /// Part of the request: method, path, query (with a space before it) and headers.
    request: &'static str,
    /// Beginning of the place of the first difference.
    place: &'static str,
    reason: &'static str,
}

const ACCEPTED: &[Accepted] = &[
    Accepted {
        request: "/api/v1/componentstatuses",
        place: "",
        reason: "component statuses are those of this process, and cannot be watched",
    },
    Accepted {
        request: "/api/v1/namespaces//",
        place: "",
        reason: "upstream takes an empty namespace for all of them; here a path with an empty segment names nothing",
    },
    Accepted {
        request: "z ?verbose",
        place: "/body",
        reason: "the list of checks follows the parts of a server",
    },
    Accepted {
        request: "watch",
        place: "/headers/content-encoding",
        reason: "watches are not compressed here: some clients cannot read the many parts that upstream compresses apart",
    },
    Accepted {
        request: "/racks ?watch",
        place: "/body",
        reason: "upstream forgets what was before a custom resource was defined",
    },
    Accepted {
        request: "/apis/reads.example.com/v2beta1/widgets ?dryRun",
        place: "/body",
        reason: "a path that custom resources do not have is answered with a Status here, upstream with a text",
    },
    Accepted {
        request: "/apis/reads.example.com/v1/widgets ?dryRun",
        place: "/body",
        reason: "a path that custom resources do not have is answered with a Status here, upstream with a text",
    },
    Accepted {
        request: "as=APIGroupDiscoveryList",
        place: "/text",
        reason: "aggregated discovery is encoded once, for all clients",
    },
    Accepted {
        request: "continue=garbage",
        place: "/body/message",
        reason: "the words of another parser of JSON",
    },
    Accepted {
        request: " / ",
        place: "/body/paths",
        reason: "the list of paths follows the checks of a server",
    },
    Accepted {
        request: "vnd.kubernetes.protobuf;g=apidiscovery.k8s.io",
        place: "/code",
        reason: "aggregated discovery has no form in protobuf here; clients ask for JSON",
    },
    Accepted {
        request: "/openapi/v3",
        place: "/body/paths/.well-known",
        reason: "the pages of the issuer have no documents here",
    },
    Accepted {
        request: "proto-openapi.spec.v3",
        place: "",
        reason: "OpenAPI of version 3 has no form in protobuf here; clients ask for JSON",
    },
    Accepted {
        request: "/openapi/v3/apis/reads.example.com",
        place: "/body",
        reason: "operations on custom resources are described by what clients read of them",
    },
    Accepted {
        request: "/openapi/v2",
        place: "/body",
        reason: "operations on custom resources are described by what clients read of them",
    },
    Accepted {
        request: "/widgets ?watch",
        place: "/body",
        reason: "upstream forgets what was before a custom resource was defined",
    },
    Accepted {
        request: "continue=@CONTINUE@",
        place: "/body",
        reason: "upstream returns a token whenever there are more objects, here only if one of them is selected",
    },
    Accepted {
        request: "as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
        place: "/body",
        reason: "events are not lists: upstream ends such a watch without an event",
    },
];

/// Returns why a difference is accepted, if it is.
pub(crate) fn reason(read: &Read, place: &str) -> Option<&'static str> {
    let request = format!("{} ", shown(read).replacen('?', " ?", 1));
    ACCEPTED
        .iter()
        .find(|known| request.contains(known.request) && place.starts_with(known.place))
        .map(|known| known.reason)
}

/// Formats a request in one line.
pub(crate) fn shown(read: &Read) -> String {
    let headers: String =
        read.headers.iter().map(|(name, value)| format!(" [{name}: {value}]")).collect();
    format!("{} {}{headers}", read.method, read.uri())
}
