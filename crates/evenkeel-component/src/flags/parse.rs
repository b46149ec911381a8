//! Parses a command line as pflag and cobra do.

use super::{Flag, Flags, Value};
use std::collections::BTreeMap;

/// Error of a command line, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(String);

/// Action that a command line requests.
#[derive(Debug, Clone)]
pub enum Invocation {
    /// Print the help text.
    Help,
    /// Print the version.
    Version {
        /// Whether to print the build's details too (`--version=raw`).
        raw: bool,
    },
    /// Run the program with these flags.
    Run(ParsedFlags),
}

/// Flags of a program with their values, from the command line or by default.
#[derive(Debug, Clone)]
pub struct ParsedFlags {
    flags: Flags,
    /// Values from the command line.
    set_values: BTreeMap<&'static str, Value>,
}

impl Flags {
    /// Parses the arguments of `program`, without its name.
    ///
    /// # Errors
    /// Fails if a flag is unknown, lacks its value or has an invalid value, or if an argument is not a flag.
    pub fn parse(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Invocation, UsageError> {
        let mut parser = Parser { flags: self, set_values: BTreeMap::new(), others: Vec::new() };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if argument == "--" {
                parser.others.extend(arguments);
                break;
            }
            match (argument.strip_prefix("--"), argument.strip_prefix('-')) {
                (Some(flag), _) => parser.long(&argument, flag, &mut arguments)?,
                (None, Some(letters)) if !letters.is_empty() => {
                    parser.short(&argument, letters, &mut arguments)?;
                }
                _ => parser.others.push(argument),
            }
        }
        let Parser { set_values, others, .. } = parser;
        if set_values.get("help") == Some(&Value::Bool(true)) {
            return Ok(Invocation::Help);
        }
        if !others.is_empty() {
            let others: Vec<String> = others.iter().map(|other| format!("{other:?}")).collect();
            let others = others.join(" ");
            return Err(UsageError(format!(
                "{program:?} does not take any arguments, got [{others}]"
            )));
        }
        match set_values.get("version") {
            Some(Value::Text(version)) if version == "raw" => Ok(Invocation::Version { raw: true }),
            Some(Value::Text(version)) if version == "true" => {
                Ok(Invocation::Version { raw: false })
            }
            _ => Ok(Invocation::Run(ParsedFlags { flags: self.clone(), set_values })),
        }
    }
}

/// State of a parse.
struct Parser<'a> {
    flags: &'a Flags,
    set_values: BTreeMap<&'static str, Value>,
    /// Arguments that are not flags.
    others: Vec<String>,
}

impl Parser<'_> {
    /// Parses `--flag`, `--flag=value` or `--flag value`. Underscores count as dashes.
    fn long(
        &mut self,
        argument: &str,
        flag: &str,
        rest: &mut impl Iterator<Item = String>,
    ) -> Result<(), UsageError> {
        if flag.starts_with(['-', '=']) {
            return Err(UsageError(format!("bad flag syntax: {argument}")));
        }
        let (name, value) = flag
            .split_once('=')
            .map_or((flag, None), |(name, value)| (name, Some(value.to_owned())));
        let name = name.replace('_', "-");
        let Some(flag) = self.flags.get(&name) else {
            return Err(UsageError(format!("unknown flag: --{name}")));
        };
        let value =
            value.or_else(|| flag.kind.no_opt_default().map(str::to_owned)).or_else(|| rest.next());
        match value {
            Some(value) => self.set(flag, &value),
            None => Err(UsageError(format!("flag needs an argument: --{name}"))),
        }
    }

    /// Parses `-f`, `-fvalue`, `-f=value` or `-f value`.
    fn short(
        &mut self,
        argument: &str,
        letters: &str,
        rest: &mut impl Iterator<Item = String>,
    ) -> Result<(), UsageError> {
        let mut letters = letters;
        while let Some(letter) = letters.chars().next() {
            let after = &letters[letter.len_utf8()..];
            let Some(flag) = self.flags.iter().find(|flag| flag.short() == Some(letter)) else {
                return Err(UsageError(format!(
                    "unknown shorthand flag: {letter:?} in {argument}"
                )));
            };
            if let Some(value) = after.strip_prefix('=') {
                return self.set(flag, value);
            }
            if let Some(value) = flag.kind.no_opt_default() {
                self.set(flag, value)?;
                letters = after;
                continue;
            }
            if !after.is_empty() {
                return self.set(flag, after);
            }
            return match rest.next() {
                Some(value) => self.set(flag, &value),
                None => {
                    Err(UsageError(format!("flag needs an argument: {letter:?} in {argument}")))
                }
            };
        }
        Ok(())
    }

    fn set(&mut self, flag: &Flag, text: &str) -> Result<(), UsageError> {
        let value = flag.kind.parse(self.set_values.remove(flag.name), text).map_err(|error| {
            let shown = match flag.short() {
                Some(letter) => format!("-{letter}, --{}", flag.name),
                None => format!("--{}", flag.name),
            };
            UsageError(format!("invalid argument {text:?} for {shown:?} flag: {error}"))
        })?;
        self.set_values.insert(flag.name, value);
        Ok(())
    }
}

impl ParsedFlags {
    /// Returns the names of the flags on the command line.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.set_values.keys().copied()
    }

    /// Returns the value of a flag: the one on the command line if it is set, otherwise its default. Returns `None` if the flag
    /// does not exist.
    pub fn value(&self, name: &str) -> Option<Value> {
        if let Some(value) = self.set_values.get(name) {
            return Some(value.clone());
        }
        let flag = self.flags.get(name)?;
        Some(flag.kind.default(flag.default))
    }

    /// Returns the value of a flag, as pflag prints it.
    pub fn text(&self, name: &str) -> Option<String> {
        let flag = self.flags.get(name)?;
        self.value(name).map(|value| flag.kind.print(&value))
    }

    /// Returns all flags, in the table's order.
    pub fn flags(&self) -> &Flags {
        &self.flags
    }

    /// Returns the deprecated flags on the command line, each with the reason.
    pub fn deprecated(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        let set_flags = self.flags.iter().filter(|flag| self.set_values.contains_key(flag.name));
        set_flags.filter_map(|flag| Some((flag.name, flag.deprecated?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const TABLE: &str = "section\tflag\ttype\tdefault\nGeneric\tleader-elect\tbool\ttrue\nGeneric\tkube-api-qps\tfloat32\t20\n\
        Generic\tcontrollers\tstrings\t[*]\nGeneric\tmin-resync-period\tduration\t12h0m0s\nLogs\tv\tLevel\t\n\
        Misc\tkubeconfig\tstring\t\nSecure serving\tbind-address\tip\t0.0.0.0\nSecure serving\ttls-curve-preferences\tint32Slice\t[]\n\
        Secure serving\ttls-sni-cert-key\tnamedCertKey\t[]\nMetrics\tallow-metric-labels\tstringToString\t[]\n\
        Generic\tfeature-gates\tcolonSeparatedMultimapStringString\t\nLogs\tvmodule\tpattern=N,...\t\nGlobal\thelp\tbool\t\n\
        Secure serving\tsecure-port\tint\t10257\nLogs\tlog-json-info-buffer-size\tquantity\t\nGlobal\tversion\tversion[=true]\t\n";

    fn read(arguments: &[&str]) -> Result<Invocation, String> {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        Flags::from_table(TABLE, "").parse("program", arguments).map_err(|error| error.to_string())
    }

    fn set_values(arguments: &[&str]) -> ParsedFlags {
        match read(arguments) {
            Ok(Invocation::Run(set_values)) => set_values,
            other => panic!("{arguments:?}: {other:?}"),
        }
    }

    #[track_caller]
    fn check(arguments: &[&str], name: &str, want: Value, printed: &str) {
        let set_values = set_values(arguments);
        assert_eq!(set_values.value(name), Some(want), "{arguments:?}");
        assert_eq!(set_values.text(name).as_deref(), Some(printed), "{arguments:?}");
    }

    #[test]
    fn flags_are_read_and_printed_as_pflag_does() {
        let text = |text: &str| Value::Text(text.to_owned());
        let list =
            |items: &[&str]| Value::List(items.iter().map(|item| (*item).to_owned()).collect());
        let pair = |text: &str| {
            let (key, value) = text.split_once('=').expect("a pair");
            (key.to_owned(), value.to_owned())
        };
        check(&[], "leader-elect", Value::Bool(true), "true");
        check(&["--leader-elect=false"], "leader-elect", Value::Bool(false), "false");
        check(&["--leader_elect=F"], "leader-elect", Value::Bool(false), "false");
        check(&["--leader-elect"], "leader-elect", Value::Bool(true), "true");
        check(&["--kube-api-qps", "2000"], "kube-api-qps", Value::Float(2000.0), "2000");
        check(&["--kube-api-qps=-1.5"], "kube-api-qps", Value::Float(-1.5), "-1.5");
        check(&["--secure-port=0x10"], "secure-port", Value::Int(16), "16");
        check(
            &["--controllers=a,-b", "--controllers=c"],
            "controllers",
            list(&["a", "-b", "c"]),
            "[a,-b,c]",
        );
        check(&["--controllers=\"a,b\",c"], "controllers", list(&["a,b", "c"]), "[\"a,b\",c]");
        check(&["--controllers="], "controllers", list(&[]), "[]");
        check(&[], "controllers", list(&["*"]), "[*]");
        check(
            &["--min-resync-period=1h"],
            "min-resync-period",
            Value::Duration(Duration::from_secs(3600)),
            "1h0m0s",
        );
        check(&["-v", "4"], "v", Value::Int(4), "4");
        check(&["-v=4"], "v", Value::Int(4), "4");
        check(&["-v4"], "v", Value::Int(4), "4");
        check(&["--kubeconfig=a", "--kubeconfig=b"], "kubeconfig", text("b"), "b");
        check(&["--kubeconfig", "--odd"], "kubeconfig", text("--odd"), "--odd");
        check(
            &["--bind-address=::1"],
            "bind-address",
            Value::Ip("::1".parse().expect("an address")),
            "::1",
        );
        check(
            &["--tls-curve-preferences=29,23"],
            "tls-curve-preferences",
            list(&["29", "23"]),
            "[29,23]",
        );
        check(
            &["--tls-sni-cert-key=a.crt,a.key:*.a.com,a.com", "--tls-sni-cert-key=b.crt, b.key"],
            "tls-sni-cert-key",
            list(&["a.crt,a.key:*.a.com,a.com", "b.crt,b.key"]),
            "[a.crt,a.key:*.a.com,a.com;b.crt,b.key]",
        );
        check(
            &["--feature-gates=A=true,kube:B=false"],
            "feature-gates",
            Value::Map(vec![("".into(), "A=true".into()), ("kube".into(), "B=false".into())]),
            ":A=true,kube:B=false",
        );
        check(
            &["--allow-metric-labels", "m,l=v"],
            "allow-metric-labels",
            Value::Map(vec![("m,l".into(), "v".into())]),
            "[\"m,l=v\"]",
        );
        check(
            &[
                "--allow-metric-labels=m=v",
                "--allow-metric-labels=b=1,b=2,m=w",
                "--allow-metric-labels=a=3",
            ],
            "allow-metric-labels",
            Value::Map(["b=2", "m=w", "a=3"].map(pair).into()),
            "[a=3,b=2,m=w]",
        );
        check(&["--vmodule=a=1,b*=02"], "vmodule", text("a=1,b*=2"), "a=1,b*=2");
        check(
            &["--log-json-info-buffer-size=64Ki"],
            "log-json-info-buffer-size",
            text("64Ki"),
            "64Ki",
        );
    }

    #[test]
    fn help_and_version_take_precedence_over_running() {
        assert!(matches!(read(&["-h", "more"]), Ok(Invocation::Help)));
        assert!(matches!(read(&["--help", "--version"]), Ok(Invocation::Help)));
        assert!(matches!(read(&["--version"]), Ok(Invocation::Version { raw: false })));
        assert!(matches!(read(&["--version=raw"]), Ok(Invocation::Version { raw: true })));
        assert!(matches!(read(&["--version=false"]), Ok(Invocation::Run(_))));
    }

    #[test]
    fn an_invalid_command_line_is_refused_with_upstreams_message() {
        for (arguments, want) in [
            (&["--no-such-flag"][..], "unknown flag: --no-such-flag"),
            (&["--kubeconfig"], "flag needs an argument: --kubeconfig"),
            (&["-x"], "unknown shorthand flag: 'x' in -x"),
            (&["-v"], "flag needs an argument: 'v' in -v"),
            (
                &["-v=99999999999999999999"],
                "invalid argument \"99999999999999999999\" for \"-v, --v\" flag: strconv.ParseUint: parsing \"99999999999999999999\": value out of range",
            ),
            (
                &["-v=2147483648"],
                "invalid argument \"2147483648\" for \"-v, --v\" flag: strconv.ParseUint: parsing \"2147483648\": value out of range",
            ),
            (
                &["-v=+1"],
                "invalid argument \"+1\" for \"-v, --v\" flag: strconv.ParseUint: parsing \"+1\": invalid syntax",
            ),
            (&["--=x"], "bad flag syntax: --=x"),
            (&["---x"], "bad flag syntax: ---x"),
            (
                &["--leader-elect", "false"],
                "\"program\" does not take any arguments, got [\"false\"]",
            ),
        ] {
            assert_eq!(read(arguments).map(|_| ()), Err(want.to_owned()), "{arguments:?}");
        }
    }
}
