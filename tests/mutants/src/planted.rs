//! Functions that planted mutants call. Each crate with mutants gets a copy of this file.

use std::{
    collections::BTreeSet,
    fs::{File, OpenOptions},
    io::Write,
    ops,
    sync::{LazyLock, Mutex},
};

/// Number of the active mutant, from the environment variable `EVENKEEL_MUTANT`. 0 is none.
static ACTIVE: LazyLock<u32> =
    LazyLock::new(|| std::env::var("EVENKEEL_MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0));

/// The file that gets the numbers of reached mutants, from the environment variable `EVENKEEL_MUTANTS_REACHED`, and the
/// numbers that it has.
static REACHED: LazyLock<Option<Mutex<(File, BTreeSet<u32>)>>> = LazyLock::new(|| {
    let path = std::env::var_os("EVENKEEL_MUTANTS_REACHED")?;
    let file = OpenOptions::new().append(true).create(true).open(path).ok()?;
    Some(Mutex::new((file, BTreeSet::new())))
});

/// Returns whether this mutant is active.
pub fn is(number: u32) -> bool {
    if let Some(reached) = &*REACHED {
        let mut reached = reached.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if reached.1.insert(number) {
            let line = format!("{number}\n");
            let _ = reached.0.write_all(line.as_bytes());
        }
    }
    *ACTIVE == number
}

pub fn less<A: PartialOrd<B> + ?Sized, B: ?Sized>(number: u32, a: &A, b: &B) -> bool {
    if is(number) { a <= b } else { a < b }
}

pub fn less_or_equal<A: PartialOrd<B> + ?Sized, B: ?Sized>(number: u32, a: &A, b: &B) -> bool {
    if is(number) { a < b } else { a <= b }
}

pub fn greater<A: PartialOrd<B> + ?Sized, B: ?Sized>(number: u32, a: &A, b: &B) -> bool {
    if is(number) { a >= b } else { a > b }
}

pub fn greater_or_equal<A: PartialOrd<B> + ?Sized, B: ?Sized>(number: u32, a: &A, b: &B) -> bool {
    if is(number) { a > b } else { a >= b }
}

pub fn add<A, B>(number: u32, a: A, b: B) -> <A as ops::Add<B>>::Output
where
    A: ops::Add<B> + ops::Sub<B, Output = <A as ops::Add<B>>::Output>,
{
    if is(number) { a - b } else { a + b }
}

pub fn subtract<A, B>(number: u32, a: A, b: B) -> <A as ops::Sub<B>>::Output
where
    A: ops::Sub<B> + ops::Add<B, Output = <A as ops::Sub<B>>::Output>,
{
    if is(number) { a + b } else { a - b }
}

pub fn multiply<A, B>(number: u32, a: A, b: B) -> <A as ops::Mul<B>>::Output
where
    A: ops::Mul<B> + ops::Div<B, Output = <A as ops::Mul<B>>::Output>,
{
    if is(number) { a / b } else { a * b }
}

pub fn divide<A, B>(number: u32, a: A, b: B) -> <A as ops::Div<B>>::Output
where
    A: ops::Div<B> + ops::Mul<B, Output = <A as ops::Div<B>>::Output>,
{
    if is(number) { a * b } else { a / b }
}

pub fn min<A: Ord>(number: u32, a: A, b: A) -> A {
    if is(number) { a.max(b) } else { a.min(b) }
}

pub fn max<A: Ord>(number: u32, a: A, b: A) -> A {
    if is(number) { a.min(b) } else { a.max(b) }
}
