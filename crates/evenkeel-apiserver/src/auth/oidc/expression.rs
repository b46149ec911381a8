//! CEL expressions of the authentication configuration. They read a token's claims, or the user mapped from them.

use std::sync::LazyLock;

use evenkeel_apimachinery::user::User;
use evenkeel_cel::check::{self, DeclType, Type};
use evenkeel_cel::{PER_CALL_LIMIT, Program, Schema, Scope, Val};
use serde_json::{Map, Value, json};

/// Compiled CEL expression, with its source.
#[derive(Debug)]
pub(super) struct Expression {
    pub(super) text: String,
    program: Program,
}

/// Variable that an expression may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variable {
    /// `claims`: a map of the token's claims.
    Claims,
    /// `user`: `username`, `uid`, `groups`, `extra`.
    User,
}

impl Expression {
    /// Compiles an expression that may read one variable. With `is_condition`, it must evaluate to a bool.
    ///
    /// Upstream: `compiler.compile`.
    pub(super) fn compile(
        text: &str,
        variable: Variable,
        is_condition: bool,
    ) -> Result<Self, String> {
        let program = Program::parse(text)?;
        let declaration = match variable {
            Variable::Claims => check::Variable::new("claims", Type::map(Type::Str, Type::Dyn)),
            Variable::User => check::Variable::new("user", USER_INFO.clone()),
        };
        let kind = check::check(&program, &[declaration])?.kind().clone();
        if is_condition && kind != Type::Bool {
            return Err("must evaluate to bool".to_owned());
        }
        Ok(Self { text: text.to_owned(), program })
    }

    /// Returns whether the expression contains `claims.CLAIM`.
    pub(super) fn reads_claim(&self, claim: &str) -> bool {
        self.program.selects("claims", claim)
    }

    /// Evaluates the expression over claims.
    pub(super) fn over_claims<'a>(&'a self, claims: &'a Value) -> Result<Val<'a>, String> {
        self.run(&Scope::default().with("claims", Val::of(claims, Some(&ClaimsSchema))))
    }

    /// Evaluates the expression over a user in the form that [`user_info`] returns.
    pub(super) fn over_user<'a>(&'a self, user: &'a Value) -> Result<Val<'a>, String> {
        self.run(&Scope::default().with("user", Val::of(user, Some(&ClaimsSchema))))
    }

    /// Evaluates the expression with the variables in `scope`.
    fn run<'a>(&'a self, scope: &Scope<'a>) -> Result<Val<'a>, String> {
        // Each evaluation has a cost budget of its own.
        self.program.run(scope, &mut { PER_CALL_LIMIT }).map_err(|failure| failure.message())
    }
}

/// Returns a user in the form that expressions read.
///
/// Upstream: `newUserInfoValue`.
pub(super) fn user_info(user: &User) -> Value {
    let extra: Map<String, Value> = user
        .extra
        .iter()
        .map(|(key, values)| (key.to_string(), values.iter().map(|value| &**value).collect()))
        .collect();
    json!({"username": user.name, "uid": user.uid, "groups": user.groups, "extra": extra})
}

/// Type of `user`.
///
/// Upstream: `buildUserType`.
static USER_INFO: LazyLock<Type> = LazyLock::new(|| {
    let string = || DeclType::of(Type::Str);
    let strings = || DeclType::of(Type::list(Type::Str));
    let extra = DeclType::of(Type::map(Type::Str, Type::list(Type::Str)));
    let fields =
        [("username", string()), ("uid", string()), ("groups", strings()), ("extra", extra)];
    DeclType::object(Some("kubernetes.UserInfo"), fields).kind
});

/// Schema of JSON values without a schema of their own. As upstream's Go code decodes them, all numbers are doubles.
/// Field names may be escaped (`claims.a__dot__b`) at any depth.
#[derive(Debug)]
struct ClaimsSchema;

impl Schema for ClaimsSchema {
    fn kind(&self) -> &str {
        "number"
    }
    fn format(&self) -> &str {
        ""
    }
    fn names_fields(&self) -> bool {
        true
    }
    fn child(&self, _: &str) -> Option<&dyn Schema> {
        Some(self)
    }
    fn items(&self) -> Option<&dyn Schema> {
        Some(self)
    }
    fn is_unordered(&self) -> bool {
        false
    }
}
