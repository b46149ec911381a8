//! Tests the tests: plants changes in a copy of the workspace, all in one build, and tells which no test notices.

mod crippled;
mod mutate;
mod sources;
mod tree;
mod unit;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser, Subcommand};
use std::{collections::BTreeMap, path::Path};
use tree::{Folders, Tree};
use unit::Outcome;

/// Changes the code, and tells which changes no test notices
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    folders: Folders,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Mutants of a crate's pure files, and its unit tests
    Unit(Unit),
    /// The crippled programs of crippled.toml, and the simulation
    Simulation(Simulation),
}

#[derive(Args)]
struct Unit {
    /// The crate, such as evenkeel-controllers
    #[arg(long, value_name = "CRATE")]
    package: String,
    /// Parts of paths: only files with one of them get mutants
    #[arg(value_name = "PATH")]
    only: Vec<String>,
    /// Number of test programs that run at a time
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Fails if fewer mutants of 100 are caught
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    least: usize,
}

#[derive(Args)]
struct Simulation {
    /// Parts of names: only entries with one of them are tried
    #[arg(value_name = "NAME")]
    only: Vec<String>,
    /// Number of entries to try; all without it
    #[arg(long, value_name = "NUMBER")]
    sample: Option<usize>,
    /// Which sample, such as the number of the day
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    turn: usize,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let root = std::env::current_dir()?;
    ensure!(root.join("crates").is_dir(), "run this in the root of the workspace");
    match arguments.command {
        Command::Unit(unit) => run_unit_tests(&root, &arguments.folders, &unit),
        Command::Simulation(simulation) => run_simulation(&root, &arguments.folders, &simulation),
    }
}

fn run_simulation(root: &Path, folders: &Folders, arguments: &Simulation) -> Result<()> {
    let list = crippled::read(&root.join("tests/mutants/crippled.toml"))?;
    let files = crippled::change(root, &list)?;
    let tree = Tree::copy(root, folders, &|path| files.contains_key(path))?;
    let program = crippled::build(&tree, &files)?;
    let selected: Vec<usize> = (0..list.len())
        .filter(|index| {
            arguments.only.is_empty()
                || arguments.only.iter().any(|part| list[*index].name.contains(part.as_str()))
        })
        .collect();
    ensure!(!selected.is_empty(), "no entry has such a name");
    let chosen: Vec<usize> = crippled::rotate(selected.len(), arguments.sample, arguments.turn)
        .into_iter()
        .map(|index| selected[index])
        .collect();
    let unnoticed = crippled::run(&program, &list, &chosen)?;
    ensure!(unnoticed.is_empty(), "no scenario notices: {}", unnoticed.join("; "));
    println!("all {} are noticed", chosen.len());
    Ok(())
}

fn run_unit_tests(root: &Path, folders: &Folders, arguments: &Unit) -> Result<()> {
    let mut found = sources::find(root, &arguments.package, &arguments.only)?;
    let planted: Vec<String> = found.iter().map(|source| source.path.clone()).collect();
    let tree = Tree::copy(root, folders, &|name| planted.iter().any(|path| path == name))?;
    sources::plant(&tree, &arguments.package, &mut found)?;
    let mutants = sources::numbered(&found);
    let program = unit::build(&tree, &arguments.package, None)?;
    let outcomes = unit::run(&tree, &program, &mutants, arguments.threads)?;

    let mut files: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for mutant in &mutants {
        let outcome = *outcomes.get(&mutant.number).context("a mutant without an outcome")?;
        let counts = files.entry(&mutant.path).or_default();
        match outcome {
            Outcome::Caught => counts[0] += 1,
            Outcome::Missed => counts[1] += 1,
            Outcome::NotReached => counts[2] += 1,
        }
        if outcome != Outcome::Caught {
            let how = if outcome == Outcome::Missed { "missed" } else { "not reached" };
            println!(
                "{}:{}: {}: {}: {how}",
                mutant.path, mutant.line, mutant.function, mutant.change
            );
        }
    }
    println!("\n| file | caught | missed | not reached |\n|---|---:|---:|---:|");
    let mut total = [0; 3];
    for (path, counts) in &files {
        println!("| {path} | {} | {} | {} |", counts[0], counts[1], counts[2]);
        for (sum, count) in total.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    let all: usize = total.iter().sum();
    let share = (total[0] * 100).checked_div(all).unwrap_or(100);
    println!("| all: {share} % caught | {} | {} | {} |", total[0], total[1], total[2]);
    ensure!(
        share >= arguments.least,
        "{share} % of the mutants are caught, fewer than {}",
        arguments.least
    );
    Ok(())
}
