//! Allocates devices for claims on one node. The backtracking search is pure and returns the first solution.
//!
//! For each request of each claim it selects devices. It tries combinations of devices, not permutations.
//!
//! Upstream: `structured/internal/incubating`, `Allocator.Allocate`.

use evenkeel_api::{
    quantity::Quantity,
    views::{Device, DeviceTaint, DeviceToleration, Node, ResourceClaim},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    capacity::{self, Amounts},
    constraint::Constraint,
    evaluations::Evaluate,
    in_use::InUse,
    inventory::{Inventory, Offer},
    pools::{self, Pool, PoolState},
    requests::{Choice, ClaimRequests, MAX_DEVICES, claim_name},
    selectors::EvaluationError,
};

/// Failure of an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The node cannot provide the devices.
    None,
    /// The node cannot provide the devices, and a pool is invalid.
    Invalid,
    /// No node can provide the devices, because a claim or class is invalid.
    Fatal(String),
    /// The search timed out.
    TimedOut,
}

/// A device selected for a request.
#[derive(Debug, Clone)]
pub(super) struct Picked<'a> {
    /// Index of the request. `choice` is the index of its subrequest.
    pub(super) request: usize,
    pub(super) choice: usize,
    pub(super) offer: &'a Offer,
    pub(super) device: &'a Device,
    /// Capacity that the request consumes of a shared device.
    pub(super) share: Option<Amounts>,
}

/// Devices selected for one claim.
#[derive(Debug)]
pub(super) struct Allocated<'a> {
    pub(super) devices: Vec<Picked<'a>>,
    /// The selected subrequest of each request.
    pub(super) choices: Vec<usize>,
}

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.slice.meta.name)
    }
}

/// Finds devices for all claims. `evaluate` returns a selector's result for a device, and `is_timed_out` reports
/// whether the timeout has passed.
pub(super) fn allocate<'a>(
    inventory: &'a Inventory,
    in_use: &'a InUse,
    node: &'a Node,
    claims: &'a [Arc<ClaimRequests>],
    evaluate: &'a Evaluate<'a>,
    is_timed_out: &'a (dyn Fn() -> bool + 'a),
) -> Result<Vec<Allocated<'a>>, Failure> {
    let mut search = Search::new(inventory, in_use, node, claims, evaluate, is_timed_out)?;
    match search.next(Cursor::default(), false, DevicePosition::default())? {
        Step::Done => Ok(search.results()),
        Step::None | Step::TooMany => {
            let invalid = search.pools.iter().any(|pool| pool.state == PoolState::Invalid);
            Err(if invalid { Failure::Invalid } else { Failure::None })
        }
    }
}

/// Position of the search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cursor {
    claim: usize,
    request: usize,
    choice: usize,
    device: usize,
}

/// Position of a device among the pools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct DevicePosition {
    pool: usize,
    offer: usize,
    device: usize,
}

/// Result of a search step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    None,
    /// The claim requests more than the maximum number of devices, regardless of the selected devices.
    TooMany,
}

/// Undo record of one selected device.
struct Undo<'a> {
    /// Whether the device's counters were added to `spent`.
    counted: bool,
    /// Whether the claim was added to `chosen`.
    marked: bool,
    /// Consumed capacity, and whether other requests consumed capacity of the device before.
    share: Option<(Amounts, bool)>,
    cursor: Cursor,
    position: DevicePosition,
    device: &'a Device,
}

struct Search<'a> {
    inventory: &'a Inventory,
    in_use: &'a InUse,
    node: &'a Node,
    claims: &'a [Arc<ClaimRequests>],
    evaluate: &'a Evaluate<'a>,
    is_timed_out: &'a (dyn Fn() -> bool + 'a),
    pools: Vec<Pool<'a>>,
    constraints: Vec<Vec<Constraint<'a>>>,
    /// Devices of requests with `allocationMode: All`, by claim, request and subrequest.
    all: HashMap<(usize, usize, usize), Vec<DevicePosition>>,
    /// Selected devices by id, each with the indexes of the claims that it was selected for.
    chosen: HashMap<&'a str, Vec<usize>>,
    /// Consumed capacity of shared devices by id.
    shares: HashMap<&'a str, Amounts>,
    /// Counters of each pool less those of devices in use, by index of the pool.
    remaining: HashMap<usize, Counters<'a>>,
    /// Counters that the selected devices consume, by index of the pool.
    spent: HashMap<usize, Counters<'a>>,
    picked: Vec<Vec<Picked<'a>>>,
    choices: Vec<Vec<usize>>,
    steps: u32,
}

/// Values of shared counters by counter set and name.
type Counters<'a> = BTreeMap<(&'a str, &'a str), Quantity>;

impl<'a> Search<'a> {
    fn new(
        inventory: &'a Inventory,
        in_use: &'a InUse,
        node: &'a Node,
        claims: &'a [Arc<ClaimRequests>],
        evaluate: &'a Evaluate<'a>,
        is_timed_out: &'a (dyn Fn() -> bool + 'a),
    ) -> Result<Self, Failure> {
        let mut search = Self {
            inventory,
            in_use,
            node,
            claims,
            evaluate,
            is_timed_out,
            pools: pools::gather(inventory, node),
            constraints: Vec::with_capacity(claims.len()),
            all: HashMap::new(),
            chosen: HashMap::new(),
            shares: HashMap::new(),
            remaining: HashMap::new(),
            spent: HashMap::new(),
            picked: vec![Vec::new(); claims.len()],
            choices: claims
                .iter()
                .map(|claim_requests| vec![0; claim_requests.requests.len()])
                .collect(),
            steps: 0,
        };
        for (claim, claim_requests) in claims.iter().enumerate() {
            search.constraints.push(constraints(&claim_requests.claim)?);
            for (request, choices) in claim_requests.requests.iter().enumerate() {
                for (index, choice) in
                    choices.iter().enumerate().filter(|(_, choice)| choice.count.is_none())
                {
                    let positions = search.all_of(&claim_requests.claim, choice)?;
                    search.all.insert((claim, request, index), positions);
                }
                search.check_limit(claim, request)?;
            }
        }
        Ok(search)
    }

    /// Returns all devices that match the subrequest.
    fn all_of(
        &self,
        claim: &ResourceClaim,
        choice: &Choice,
    ) -> Result<Vec<DevicePosition>, Failure> {
        let mut positions = Vec::new();
        for (pool_index, pool) in self.pools.iter().enumerate() {
            let why = match pool.state {
                PoolState::Usable => None,
                PoolState::Incomplete => Some("being updated"),
                PoolState::Invalid => Some("invalid"),
            };
            if let Some(why) = why {
                return Err(Failure::Fatal(format!(
                    "claim {}, request {}: asks for all devices, but resource pool {}/{} is currently {why}",
                    claim_name(claim),
                    choice.name(),
                    pool.driver,
                    pool.name
                )));
            }
            for (offer_index, offer) in pool.offers.iter().enumerate() {
                for device_index in 0..offer.devices().len() {
                    let position = DevicePosition {
                        pool: pool_index,
                        offer: offer_index,
                        device: device_index,
                    };
                    if self.selects(claim, choice, offer, device_index)?
                        && self.suffices(claim, choice, offer, device_index, [None, None])?
                    {
                        positions.push(position);
                    }
                }
            }
        }
        Ok(positions)
    }

    /// Fails if the claim requests more than [`MAX_DEVICES`] devices.
    fn check_limit(&self, claim: usize, request: usize) -> Result<(), Failure> {
        let least = |request: usize| {
            let choices = self.claims[claim].requests[request].iter().enumerate();
            choices
                .map(|(choice, _)| self.count(Cursor { claim, request, choice, device: 0 }))
                .min()
        };
        let before: usize = (0..request).filter_map(least).sum();
        let more = least(request).unwrap_or(0);
        if more <= MAX_DEVICES.saturating_sub(before) {
            return Ok(());
        }
        let claim = &self.claims[claim].claim;
        Err(Failure::Fatal(format!(
            "claim {}, request {}: adding {more} devices exceeds the claim limit of {MAX_DEVICES}, with {before} already accounted for",
            claim_name(claim),
            claim.spec.devices.requests[request].name
        )))
    }

    fn choice(&self, cursor: Cursor) -> &'a Choice {
        &self.claims[cursor.claim].requests[cursor.request][cursor.choice]
    }

    /// Returns the number of devices that the subrequest requests.
    fn count(&self, cursor: Cursor) -> usize {
        let all =
            || self.all.get(&(cursor.claim, cursor.request, cursor.choice)).map_or(0, Vec::len);
        self.choice(cursor).count.unwrap_or_else(all)
    }

    /// Continues the search at `cursor`, with devices from `start` on. `chosen` means that the subrequest is fixed.
    fn next(
        &mut self,
        cursor: Cursor,
        chosen: bool,
        start: DevicePosition,
    ) -> Result<Step, Failure> {
        self.steps += 1;
        if self.steps.is_multiple_of(64) && (self.is_timed_out)() {
            return Err(Failure::TimedOut);
        }
        let Some(claim_requests) = self.claims.get(cursor.claim) else { return Ok(Step::Done) };
        let Some(choices) = claim_requests.requests.get(cursor.request) else {
            let step = self.next(
                Cursor { claim: cursor.claim + 1, ..Cursor::default() },
                false,
                DevicePosition::default(),
            )?;
            // The limit of another claim does not reject this claim's subrequest.
            return Ok(if step == Step::TooMany { Step::None } else { step });
        };
        let several = choices.first().is_some_and(|choice| choice.choice.is_some());
        if several && !chosen {
            // A request with alternatives tries its subrequests in order of preference.
            return self.choose(cursor, choices.len());
        }
        if choices.is_empty() {
            return Ok(Step::None);
        }
        let requested = self.count(cursor);
        let all = self.choice(cursor).count.is_none();
        if all && requested == 0 {
            return Ok(Step::None);
        }
        if cursor.device >= requested {
            let next =
                Cursor { claim: cursor.claim, request: cursor.request + 1, ..Cursor::default() };
            return self.next(next, false, DevicePosition::default());
        }
        if requested - cursor.device > MAX_DEVICES.saturating_sub(self.picked[cursor.claim].len()) {
            return Ok(Step::TooMany);
        }
        if all { self.take_all(cursor) } else { self.take_one(cursor, start) }
    }

    /// Selects the first subrequest with which the rest of the search succeeds.
    fn choose(&mut self, cursor: Cursor, choices: usize) -> Result<Step, Failure> {
        let mut always_too_many = true;
        for choice in 0..choices {
            match self.next(Cursor { choice, ..cursor }, true, DevicePosition::default())? {
                Step::TooMany => {}
                Step::None => always_too_many = false,
                Step::Done => {
                    self.choices[cursor.claim][cursor.request] = choice;
                    return Ok(Step::Done);
                }
            }
        }
        Ok(if always_too_many { Step::TooMany } else { Step::None })
    }

    /// Selects the next device of a request for all devices, then continues the search.
    fn take_all(&mut self, cursor: Cursor) -> Result<Step, Failure> {
        let positions = self.all.get(&(cursor.claim, cursor.request, cursor.choice));
        let Some(position) = positions.and_then(|positions| positions.get(cursor.device)).copied()
        else {
            return Ok(Step::None);
        };
        let Some(undo) = self.take(cursor, position, true)? else { return Ok(Step::None) };
        let step = self.next(
            Cursor { device: cursor.device + 1, ..cursor },
            true,
            DevicePosition::default(),
        );
        if step != Ok(Step::Done) {
            self.undo(&undo);
        }
        step
    }

    /// Tries the devices from `start` on: selects one, then continues the search.
    fn take_one(&mut self, cursor: Cursor, start: DevicePosition) -> Result<Step, Failure> {
        for pool in start.pool..self.pools.len() {
            if self.pools[pool].state != PoolState::Usable {
                continue;
            }
            let first_offer = if pool == start.pool { start.offer } else { 0 };
            for offer in first_offer..self.pools[pool].offers.len() {
                let here = self.pools[pool].offers[offer];
                let begins = pool == start.pool && offer == start.offer;
                for device in if begins { start.device } else { 0 }..here.devices().len() {
                    let position = DevicePosition { pool, offer, device };
                    if !self.may_take(cursor, here, device)? {
                        continue;
                    }
                    let Some(undo) = self.take(cursor, position, false)? else { continue };
                    let rest = DevicePosition { device: device + 1, ..position };
                    let step =
                        self.next(Cursor { device: cursor.device + 1, ..cursor }, true, rest);
                    if step == Ok(Step::Done) {
                        return step;
                    }
                    self.undo(&undo);
                    if step != Ok(Step::None) {
                        return step;
                    }
                }
            }
        }
        Ok(Step::None)
    }

    /// Reports whether the device is free, matches the subrequest, and has enough capacity.
    fn may_take(&self, cursor: Cursor, offer: &'a Offer, device: usize) -> Result<bool, Failure> {
        let (choice, claim) = (self.choice(cursor), &self.claims[cursor.claim].claim);
        let id = &*offer.ids[device];
        if self.is_taken(choice, id, cursor.claim) || !self.selects(claim, choice, offer, device)? {
            return Ok(false);
        }
        let already = [self.in_use.shared(id), self.shares.get(id)];
        self.suffices(claim, choice, offer, device, already)
    }

    fn is_taken(&self, choice: &Choice, id: &str, claim: usize) -> bool {
        let chosen = self.chosen.get(id);
        if choice.admin {
            // Admin access shares devices with other claims, but a claim gets each device only once.
            return chosen.is_some_and(|claims| claims.contains(&claim));
        }
        self.in_use.is_taken(id) || chosen.is_some_and(|claims| !claims.is_empty())
    }

    /// Reports whether the class and the request select the device, and whether the node can access it.
    fn selects(
        &self,
        claim: &ResourceClaim,
        choice: &Choice,
        offer: &Offer,
        device: usize,
    ) -> Result<bool, Failure> {
        for (class, n, selector) in choice.selectors() {
            let owner = || match class {
                Some(class) => format!("class {class}: selector #{n}"),
                None => format!("claim {}: selector #{n}", claim_name(claim)),
            };
            match (self.evaluate)(offer, selector, device) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(EvaluationError::Compile(why)) => {
                    return Err(Failure::Fatal(format!("{}: CEL compile error: {why}", owner())));
                }
                Err(EvaluationError::Run(why)) => {
                    let id = &offer.ids[device];
                    return Err(Failure::Fatal(format!(
                        "{} on device {id}: CEL runtime error: {why}",
                        owner()
                    )));
                }
            }
        }
        let per_device = offer.slice.spec.per_device_node_selection;
        Ok(!per_device || pools::device_reaches(&offer.devices()[device], self.node))
    }

    /// Reports whether the device has enough capacity left after `already`, the capacity that others consume.
    fn suffices(
        &self,
        claim: &ResourceClaim,
        choice: &Choice,
        offer: &Offer,
        device: usize,
        already: [Option<&Amounts>; 2],
    ) -> Result<bool, Failure> {
        let total = &offer.devices()[device].capacity;
        capacity::suffices(choice.capacity.as_ref(), total, already).map_err(|why| {
            Failure::Fatal(format!(
                "claim {}, request {}: checking capacity for device {}: {why}",
                claim_name(claim),
                choice.name(),
                offer.ids[device]
            ))
        })
    }

    /// Selects the device if it is available. With `must`, a violated constraint is an error, because no other device
    /// can replace it.
    fn take(
        &mut self,
        cursor: Cursor,
        position: DevicePosition,
        must: bool,
    ) -> Result<Option<Undo<'a>>, Failure> {
        let choice = self.choice(cursor);
        let offer: &'a Offer = self.pools[position.pool].offers[position.offer];
        let device = &offer.devices()[position.device];
        let id: &'a str = &offer.ids[position.device];
        let is_shared = device.allow_multiple_allocations;
        let has_device = self.chosen.get(id).is_some_and(|claims| claims.contains(&cursor.claim));
        if (choice.admin && !is_shared && has_device)
            || (!choice.admin && self.is_taken(choice, id, cursor.claim))
        {
            return Ok(None);
        }
        let mut undo =
            Undo { counted: false, marked: false, share: None, cursor, position, device };
        let counted_before =
            is_shared && (self.in_use.shared(id).is_some() || self.shares.contains_key(id));
        if !counted_before && !device.consumes_counters.is_empty() {
            if !self.spend(position.pool, device) {
                return Ok(None);
            }
            undo.counted = true;
        }
        let mut taints = device.taints.iter().chain(self.inventory.taints_of(offer, device));
        if taints.any(|taint| forbids(taint, &choice.tolerations)) {
            self.undo_counters(&undo);
            return Ok(None);
        }
        if !self.constrain(cursor, choice, offer.driver(), device) {
            self.undo_counters(&undo);
            if must {
                return Err(Failure::Fatal(format!(
                    "claim {}, request {}: cannot add device {id} because a claim constraint would not be satisfied",
                    claim_name(&self.claims[cursor.claim].claim),
                    choice.name()
                )));
            }
            return Ok(None);
        }
        let already = [self.in_use.shared(id), self.shares.get(id)];
        if !self.suffices(
            &self.claims[cursor.claim].claim,
            choice,
            offer,
            position.device,
            already,
        )? {
            self.release(cursor, choice);
            self.undo_counters(&undo);
            return Ok(None);
        }
        if is_shared {
            let taken = capacity::consumed(choice.capacity.as_ref(), &device.capacity)
                .map_err(Failure::Fatal)?;
            let before = self.shares.contains_key(id);
            let sums = self.shares.entry(id).or_default();
            for (name, amount) in &taken {
                *sums.entry(name.clone()).or_insert(Quantity::ZERO) += *amount;
            }
            undo.share = Some((taken, before));
        } else {
            self.chosen.entry(id).or_default().push(cursor.claim);
            undo.marked = true;
        }
        let share = undo.share.as_ref().map(|(taken, _)| taken.clone());
        let (request, choice) = (cursor.request, cursor.choice);
        self.picked[cursor.claim].push(Picked { request, choice, offer, device, share });
        Ok(Some(undo))
    }

    /// Reverts the selection of a device.
    fn undo(&mut self, undo: &Undo<'a>) {
        let cursor = undo.cursor;
        self.picked[cursor.claim].pop();
        let id: &'a str = {
            let offer: &'a Offer = self.pools[undo.position.pool].offers[undo.position.offer];
            &offer.ids[undo.position.device]
        };
        if let Some((taken, before)) = &undo.share {
            if *before {
                let sums = self.shares.entry(id).or_default();
                for (name, amount) in taken {
                    *sums.entry(name.clone()).or_insert(Quantity::ZERO) -= *amount;
                }
            } else {
                self.shares.remove(id);
            }
        }
        if undo.marked
            && let Some(claims) = self.chosen.get_mut(id)
        {
            claims.pop();
        }
        self.release(cursor, self.choice(cursor));
        self.undo_counters(undo);
    }

    fn undo_counters(&mut self, undo: &Undo<'a>) {
        if undo.counted {
            let spent = self.spent.entry(undo.position.pool).or_default();
            for_each_counter(undo.device, |key, amount| {
                *spent.entry(key).or_insert(Quantity::ZERO) -= amount;
            });
        }
    }

    /// Adds the device to all of the claim's constraints. If it violates one, adds it to none and returns false.
    fn constrain(
        &mut self,
        cursor: Cursor,
        choice: &Choice,
        driver: &str,
        device: &'a Device,
    ) -> bool {
        let constraints = &mut self.constraints[cursor.claim];
        let violated = constraints.iter_mut().position(|constraint| {
            !constraint.add(&choice.request, choice.choice.as_deref(), driver, device)
        });
        if let Some(index) = violated {
            for constraint in constraints[..index].iter_mut().rev() {
                constraint.remove(&choice.request, choice.choice.as_deref());
            }
        }
        violated.is_none()
    }

    /// Removes the device that was added last from all of the claim's constraints.
    fn release(&mut self, cursor: Cursor, choice: &Choice) {
        for constraint in self.constraints[cursor.claim].iter_mut().rev() {
            constraint.remove(&choice.request, choice.choice.as_deref());
        }
    }

    /// Consumes the device's counters. Returns false, and consumes none, if the pool does not have enough left.
    fn spend(&mut self, pool: usize, device: &'a Device) -> bool {
        if !self.remaining.contains_key(&pool) {
            let remaining = self.remaining_in(pool);
            self.remaining.insert(pool, remaining);
        }
        let spent = self.spent.entry(pool).or_default();
        for_each_counter(device, |key, amount| {
            *spent.entry(key).or_insert(Quantity::ZERO) += amount;
        });
        let enough = self.remaining[&pool].iter().all(|(key, remaining)| {
            spent.get(key).copied().unwrap_or(Quantity::ZERO) <= *remaining
        });
        if !enough {
            for_each_counter(device, |key, amount| {
                *spent.entry(key).or_insert(Quantity::ZERO) -= amount;
            });
        }
        enough
    }

    /// Returns the counters of a pool less those of devices in use.
    fn remaining_in(&self, pool: usize) -> Counters<'a> {
        let pool = &self.pools[pool];
        let mut remaining = Counters::new();
        for (set, counters) in &pool.counters {
            for (name, counter) in counters.counters.iter() {
                remaining.insert((*set, name), counter.value);
            }
        }
        for offer in pool.offers.iter().chain(&pool.elsewhere) {
            let offer: &'a Offer = offer;
            for (device, id) in offer.devices().iter().zip(&*offer.ids) {
                if !device.consumes_counters.is_empty() && self.in_use.has(id) {
                    for_each_counter(device, |key, amount| {
                        if let Some(value) = remaining.get_mut(&key) {
                            *value -= amount;
                        }
                    });
                }
            }
        }
        remaining
    }

    fn results(self) -> Vec<Allocated<'a>> {
        let allocated = self.picked.into_iter().zip(self.choices);
        allocated.map(|(devices, choices)| Allocated { devices, choices }).collect()
    }
}

fn constraints(claim: &ResourceClaim) -> Result<Vec<Constraint<'_>>, Failure> {
    let build = |(n, constraint)| {
        Constraint::new(constraint).ok_or_else(|| {
            Failure::Fatal(format!(
                "claim {}, constraint #{n}: empty constraint (unsupported constraint type?)",
                claim_name(claim)
            ))
        })
    };
    claim.spec.devices.constraints.iter().enumerate().map(build).collect()
}

fn for_each_counter<'a>(device: &'a Device, mut each: impl FnMut((&'a str, &'a str), Quantity)) {
    for consumed in &device.consumes_counters {
        for (name, counter) in consumed.counters.iter() {
            each((&consumed.counter_set, name), counter.value);
        }
    }
}

fn forbids(taint: &DeviceTaint, tolerations: &[DeviceToleration]) -> bool {
    let tolerates = |toleration: &DeviceToleration| {
        (toleration.effect.is_empty() || toleration.effect == taint.effect)
            && (toleration.key.is_empty() || toleration.key == taint.key)
            && match &*toleration.operator {
                "" | "Equal" => toleration.value == taint.value,
                "Exists" => true,
                _ => false,
            }
    };
    matches!(&*taint.effect, "NoSchedule" | "NoExecute") && !tolerations.iter().any(tolerates)
}

/// Returns the devices of an allocation by name, for tests.
#[cfg(test)]
pub(super) fn names(allocated: &[Allocated<'_>], claims: &[Arc<ClaimRequests>]) -> Vec<String> {
    let mut names = Vec::new();
    for (allocated, claim_requests) in allocated.iter().zip(claims) {
        for picked in &allocated.devices {
            let choice = &claim_requests.requests[picked.request][picked.choice];
            let (pool, device) = (picked.offer.pool(), &picked.device.name);
            names.push(format!("{}={pool}/{device}", choice.full_name()));
        }
    }
    names
}
