//! Authentication of requests (tokens, client certificates, front proxies), and their authorization (RBAC, Node
//! authorizer).

mod anonymous;
mod authenticated_group;
mod authenticator;
mod authorization;
mod authorizer;
pub(crate) mod bootstrap_token;
mod config_reloads;
mod constant_time;
pub(crate) mod escalation;
mod front_proxy;
pub(crate) mod impersonation;
mod jose;
mod nodes;
mod oidc;
mod permit;
mod rbac;
mod rbac_authorizer;
mod response;
mod rule;
pub(crate) mod serviceaccount;

pub(crate) use anonymous::Anonymous;
pub(crate) use authenticator::{Authenticated, Authenticator, StaticTokens, refused_peer};
pub(crate) use authorization::{Answers, Effect, settled};
pub(crate) use authorizer::{AuthorizationOptions, Authorizer, follow};
pub(crate) use jose::{Jws, PublicKey, Signer};
pub(crate) use nodes::{MIRROR_ANNOTATION, node_of, refers_to_any};
pub(crate) use oidc::{Source as JwtSource, configure};
pub(crate) use permit::{forbidden, permit, refusal};
pub(crate) use rbac::{Role, RoleRef, aggregate};
pub(crate) use response::{Notes, Response, UsedSecret};
pub(crate) use rule::{
    Attributes, FieldRequirements, LabelRequirements, PolicyRule, non_resource_url_matches,
};
pub(crate) use serviceaccount::{Claims, LAST_USED, ServiceAccountOptions, ServiceAccounts};

pub use authorization::AuthorizationWebhookOptions;
pub use evenkeel_apimachinery::user::User;
pub use front_proxy::RequestHeaderOptions;
