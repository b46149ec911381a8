//! Feature gates of every program that is built from the generic server library.

/// Alpha and beta gates of `k8s.io/apiserver`, `k8s.io/component-base`, `k8s.io/controller-manager` and
/// `k8s.io/cloud-provider`, sorted. A cloud-controller-manager has only these, and none of `pkg/features`.
const GENERIC: [&str; 40] = [
    "APIResponseCompression",
    "APIServerIdentity",
    "APIServerWebhookAuthenticationToken",
    "APIServingWithRoutine",
    "AllowParsingUserUIDFromCertAuth",
    "AllowUnsafeMalformedObjectDeletion",
    "CBORServingAndStorage",
    "CloudControllerManagerWatchBasedRoutesReconciliation",
    "CloudControllerManagerWebhook",
    "ComponentFlagz",
    "ComponentStatusz",
    "ConcurrentWatchObjectDecode",
    "ConsistentListFromCacheSkipTimeoutFallback",
    "ConstrainedImpersonation",
    "ContextualLogging",
    "ControllerManagerReleaseLeaderElectionLockOnExit",
    "CoordinatedLeaderElection",
    "DeclarativeValidationBeta",
    "DetectCacheInconsistency",
    "EtcdRangeStream",
    "ExcludeAdmissionWebhookVirtualResources",
    "ListFromCacheSnapshot",
    "LoggingAlphaOptions",
    "LoggingBetaOptions",
    "ManifestBasedAdmissionControlConfig",
    "NativeHistograms",
    "OpenAPIEnums",
    "RemoteRequestHeaderUID",
    "ShardedListAndWatch",
    "SizeBasedListCostEstimate",
    "StorageVersionAPI",
    "StorageVersionHash",
    "StructuredAuthenticationConfigurationEgressSelector",
    "StructuredAuthenticationConfigurationJWKSMetrics",
    "TokenRequestServiceAccountUIDValidation",
    "UnauthenticatedHTTP2DOSMitigation",
    "UnknownVersionInteroperabilityProxy",
    "WatchList",
    "WatchListCompression",
    "WebhookRoundTripLoadBalancing",
];

/// Returns whether a program that is built only from the generic server library has this gate.
pub(super) fn is_generic(gate: &str) -> bool {
    GENERIC.contains(&gate)
}
