//! Allocates devices for claims on one node. The backtracking search is pure and returns the first solution.
//!
//! The search selects devices for each request of each claim. It tries combinations of devices, not permutations.
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
    requests::{Choice, ChoiceSelector, ClaimRequests, MAX_DEVICES, claim_name},
    selectors::EvaluationError,
};

/// Number of search steps between checks of the timeout.
const STEPS_PER_TIMEOUT_CHECK: u32 = 64;

/// Failure of an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The node cannot provide the devices.
    NoSolution,
    /// The node cannot provide the devices, and a pool is invalid.
    InvalidPool,
    /// No node can provide the devices, because a claim or class is invalid.
    Fatal(String),
    /// The search timed out.
    TimedOut,
}

/// A device selected for a request.
#[derive(Debug, Clone)]
pub(super) struct SelectedDevice<'a> {
    /// Index of the request in the claim.
    pub(super) request_index: usize,
    /// Index of the choice in the request.
    pub(super) choice_index: usize,
    pub(super) offer: &'a Offer,
    pub(super) device: &'a Device,
    /// Capacity of a shared device that the request consumes. `None` if the device is not shared.
    pub(super) consumed: Option<Amounts>,
}

/// Devices selected for one claim.
#[derive(Debug)]
pub(super) struct AllocatedDevices<'a> {
    pub(super) devices: Vec<SelectedDevice<'a>>,
    /// Index of the selected choice of each request.
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
) -> Result<Vec<AllocatedDevices<'a>>, Failure> {
    let mut search = Search::new(inventory, in_use, node, claims, evaluate, is_timed_out)?;
    match search.select_for_request(Cursor::default())? {
        Step::Done => Ok(search.results()),
        Step::None | Step::TooMany => {
            let has_invalid_pool = search.pools.iter().any(|pool| pool.state == PoolState::Invalid);
            Err(if has_invalid_pool { Failure::InvalidPool } else { Failure::NoSolution })
        }
    }
}

/// Position of the search: indexes of the claim, of its request, of the choice, and of the device to select for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cursor {
    claim: usize,
    request: usize,
    choice: usize,
    device: usize,
}

/// Position of a device: indexes of its pool, of the slice in the pool, and of the device in the slice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct DevicePosition {
    pool: usize,
    offer: usize,
    device: usize,
}

/// Result of a search step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// All claims have their devices.
    Done,
    /// No selection from here on satisfies all claims.
    None,
    /// The claim requests more than the maximum number of devices, regardless of the selected devices.
    TooMany,
}

/// Effect of a violated constraint on the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConstraintViolation {
    /// The search fails, because no other device can replace this one.
    IsFatal,
    /// The search tries another device.
    SkipsDevice,
}

/// Undo record of one selected device.
struct Undo<'a> {
    /// Whether the device's counters were added to `consumed_counters`.
    consumed_counters: bool,
    /// Whether the claim was added to `claims_of_device`.
    added_claim: bool,
    /// Capacity that was added to `consumed_capacity`.
    consumed_capacity: Option<Amounts>,
    /// Whether other requests consumed capacity of the device before.
    was_shared: bool,
    cursor: Cursor,
    position: DevicePosition,
    device: &'a Device,
}

/// State of the search: its input, and the devices selected so far with their effects.
struct Search<'a> {
    inventory: &'a Inventory,
    in_use: &'a InUse,
    node: &'a Node,
    claims: &'a [Arc<ClaimRequests>],
    evaluate: &'a Evaluate<'a>,
    is_timed_out: &'a (dyn Fn() -> bool + 'a),
    pools: Vec<Pool<'a>>,
    constraints: Vec<Vec<Constraint<'a>>>,
    /// Devices of requests with `allocationMode: All`, by the indexes of claim, request and choice.
    all_devices: HashMap<(usize, usize, usize), Vec<DevicePosition>>,
    /// Indexes of the claims for which a device was selected, by the device's id.
    claims_of_device: HashMap<&'a str, Vec<usize>>,
    /// Capacity of shared devices that the selected requests consume, by the device's id.
    consumed_capacity: HashMap<&'a str, Amounts>,
    /// Counters of each pool less those of devices in use, by index of the pool.
    available_counters: HashMap<usize, Counters<'a>>,
    /// Counters that the selected devices consume, by index of the pool.
    consumed_counters: HashMap<usize, Counters<'a>>,
    /// Selected devices of each claim.
    selected: Vec<Vec<SelectedDevice<'a>>>,
    /// Index of the selected choice, by claim and request.
    choices: Vec<Vec<usize>>,
    /// Number of steps of the search so far.
    steps: u32,
}

/// Values of shared counters by counter set and name.
type Counters<'a> = BTreeMap<(&'a str, &'a str), Quantity>;

impl<'a> Search<'a> {
    /// Prepares a search. Fails if a claim is invalid or requests too many devices.
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
            all_devices: HashMap::new(),
            claims_of_device: HashMap::new(),
            consumed_capacity: HashMap::new(),
            available_counters: HashMap::new(),
            consumed_counters: HashMap::new(),
            selected: vec![Vec::new(); claims.len()],
            choices: claims
                .iter()
                .map(|claim_requests| vec![0; claim_requests.requests.len()])
                .collect(),
            steps: 0,
        };
        for (claim, claim_requests) in claims.iter().enumerate() {
            search.constraints.push(constraints(&claim_requests.claim)?);
            for (request, choices) in claim_requests.requests.iter().enumerate() {
                for (index, choice) in choices.iter().enumerate() {
                    if choice.count.is_none() {
                        let positions = search.find_all_devices(&claim_requests.claim, choice)?;
                        search.all_devices.insert((claim, request, index), positions);
                    }
                }
                search.check_limit(claim, request)?;
            }
        }
        Ok(search)
    }

    /// Returns all devices that match the choice.
    fn find_all_devices(
        &self,
        claim: &ResourceClaim,
        choice: &Choice,
    ) -> Result<Vec<DevicePosition>, Failure> {
        let mut positions = Vec::new();
        for (pool_index, pool) in self.pools.iter().enumerate() {
            let reason = match pool.state {
                PoolState::Usable => None,
                PoolState::Incomplete => Some("being updated"),
                PoolState::Invalid => Some("invalid"),
            };
            if let Some(reason) = reason {
                return Err(Failure::Fatal(format!(
                    "claim {}, request {}: asks for all devices, but resource pool {}/{} is currently {reason}",
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

    /// Fails if the claim's requests up to the one with index `request` need more than [`MAX_DEVICES`] devices.
    fn check_limit(&self, claim: usize, request: usize) -> Result<(), Failure> {
        let min_count = |request: usize| {
            let choices = 0..self.claims[claim].requests[request].len();
            choices.map(|choice| self.count(Cursor { claim, request, choice, device: 0 })).min()
        };
        let n_before: usize = (0..request).filter_map(min_count).sum();
        let n_added = min_count(request).unwrap_or(0);
        if n_added <= MAX_DEVICES.saturating_sub(n_before) {
            return Ok(());
        }
        let claim = &self.claims[claim].claim;
        Err(Failure::Fatal(format!(
            "claim {}, request {}: adding {n_added} devices exceeds the claim limit of {MAX_DEVICES}, with {n_before} already accounted for",
            claim_name(claim),
            claim.spec.devices.requests[request].name
        )))
    }

    /// Returns the choice at `cursor`.
    fn choice(&self, cursor: Cursor) -> &'a Choice {
        &self.claims[cursor.claim].requests[cursor.request][cursor.choice]
    }

    /// Returns all devices of a choice with `allocationMode: All`.
    fn all_devices(&self, Cursor { claim, request, choice, .. }: Cursor) -> &[DevicePosition] {
        self.all_devices.get(&(claim, request, choice)).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of devices that the choice requests.
    fn count(&self, cursor: Cursor) -> usize {
        self.choice(cursor).count.unwrap_or_else(|| self.all_devices(cursor).len())
    }

    /// Counts a step of the search. Fails if the search has timed out.
    fn count_step(&mut self) -> Result<(), Failure> {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_PER_TIMEOUT_CHECK) && (self.is_timed_out)() {
            return Err(Failure::TimedOut);
        }
        Ok(())
    }

    /// Selects devices for the request at `cursor`, whose choice is still open, and for all requests after it.
    fn select_for_request(&mut self, cursor: Cursor) -> Result<Step, Failure> {
        self.count_step()?;
        let Some(claim_requests) = self.claims.get(cursor.claim) else { return Ok(Step::Done) };
        let Some(choices) = claim_requests.requests.get(cursor.request) else {
            let next_claim = Cursor { claim: cursor.claim + 1, ..Cursor::default() };
            let step = self.select_for_request(next_claim)?;
            // The limit of another claim does not reject this claim's choice.
            return Ok(if step == Step::TooMany { Step::None } else { step });
        };
        match choices.first() {
            None => Ok(Step::None),
            Some(choice) if choice.subrequest_name.is_some() => self.choose(cursor, choices.len()),
            Some(_) => self.select_for_choice(cursor, DevicePosition::default()),
        }
    }

    /// Selects the first choice with which the rest of the search succeeds.
    fn choose(&mut self, cursor: Cursor, n_choices: usize) -> Result<Step, Failure> {
        let mut all_exceed_limit = true;
        for choice in 0..n_choices {
            let start = DevicePosition::default();
            match self.select_for_choice(Cursor { choice, ..cursor }, start)? {
                Step::TooMany => {}
                Step::None => all_exceed_limit = false,
                Step::Done => {
                    self.choices[cursor.claim][cursor.request] = choice;
                    return Ok(Step::Done);
                }
            }
        }
        Ok(if all_exceed_limit { Step::TooMany } else { Step::None })
    }

    /// Selects the remaining devices of the choice at `cursor` among the devices from `start` on, and devices for all
    /// requests after it.
    fn select_for_choice(
        &mut self,
        cursor: Cursor,
        start: DevicePosition,
    ) -> Result<Step, Failure> {
        self.count_step()?;
        let requested = self.count(cursor);
        let requests_all = self.choice(cursor).count.is_none();
        if requests_all && requested == 0 {
            return Ok(Step::None);
        }
        if cursor.device >= requested {
            let claim = cursor.claim;
            let request = cursor.request + 1;
            return self.select_for_request(Cursor { claim, request, ..Cursor::default() });
        }
        let n_selected = self.selected[cursor.claim].len();
        if requested - cursor.device > MAX_DEVICES.saturating_sub(n_selected) {
            return Ok(Step::TooMany);
        }
        if requests_all { self.select_next_of_all(cursor) } else { self.select_one(cursor, start) }
    }

    /// Selects the next device of a choice that requests all devices, then continues the search.
    fn select_next_of_all(&mut self, cursor: Cursor) -> Result<Step, Failure> {
        let Some(position) = self.all_devices(cursor).get(cursor.device).copied() else {
            return Ok(Step::None);
        };
        let Some(undo) = self.select(cursor, position, ConstraintViolation::IsFatal)? else {
            return Ok(Step::None);
        };
        let next = Cursor { device: cursor.device + 1, ..cursor };
        let step = self.select_for_choice(next, DevicePosition::default());
        if step != Ok(Step::Done) {
            self.undo(&undo);
        }
        step
    }

    /// Selects the first device from `start` on with which the rest of the search succeeds.
    fn select_one(&mut self, cursor: Cursor, start: DevicePosition) -> Result<Step, Failure> {
        for pool in start.pool..self.pools.len() {
            if self.pools[pool].state != PoolState::Usable {
                continue;
            }
            let first_offer = if pool == start.pool { start.offer } else { 0 };
            for offer_index in first_offer..self.pools[pool].offers.len() {
                let offer = self.pools[pool].offers[offer_index];
                let is_start = pool == start.pool && offer_index == start.offer;
                let first_device = if is_start { start.device } else { 0 };
                for device in first_device..offer.devices().len() {
                    if !self.may_select(cursor, offer, device)? {
                        continue;
                    }
                    let position = DevicePosition { pool, offer: offer_index, device };
                    let violation = ConstraintViolation::SkipsDevice;
                    let Some(undo) = self.select(cursor, position, violation)? else { continue };
                    let next = Cursor { device: cursor.device + 1, ..cursor };
                    let after = DevicePosition { device: device + 1, ..position };
                    let step = self.select_for_choice(next, after);
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

    /// Returns whether the device is free, matches the choice, and has enough capacity.
    fn may_select(&self, cursor: Cursor, offer: &'a Offer, device: usize) -> Result<bool, Failure> {
        let choice = self.choice(cursor);
        let claim = &self.claims[cursor.claim].claim;
        let id = &*offer.ids[device];
        if self.is_unavailable(choice, id, cursor.claim)
            || !self.selects(claim, choice, offer, device)?
        {
            return Ok(false);
        }
        let consumed = [self.in_use.consumed_capacity(id), self.consumed_capacity.get(id)];
        self.suffices(claim, choice, offer, device, consumed)
    }

    /// Returns whether the device is in use, so that the claim with this index cannot get it for the choice.
    fn is_unavailable(&self, choice: &Choice, id: &str, claim: usize) -> bool {
        let claims = self.claims_of_device.get(id);
        if choice.admin_access {
            // Admin access shares devices with other claims, but a claim gets each device only once.
            return claims.is_some_and(|claims| claims.contains(&claim));
        }
        self.in_use.is_exclusively_allocated(id) || claims.is_some_and(|claims| !claims.is_empty())
    }

    /// Returns whether the class and the request select the device, and whether the node can access it.
    fn selects(
        &self,
        claim: &ResourceClaim,
        choice: &Choice,
        offer: &Offer,
        device: usize,
    ) -> Result<bool, Failure> {
        for ChoiceSelector { class, index, selector } in choice.selectors() {
            let owner = || match class {
                Some(class) => format!("class {class}: selector #{index}"),
                None => format!("claim {}: selector #{index}", claim_name(claim)),
            };
            match (self.evaluate)(offer, selector, device) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(EvaluationError::Compile(reason)) => {
                    return Err(Failure::Fatal(format!(
                        "{}: CEL compile error: {reason}",
                        owner()
                    )));
                }
                Err(EvaluationError::Run(reason)) => {
                    let id = &offer.ids[device];
                    return Err(Failure::Fatal(format!(
                        "{} on device {id}: CEL runtime error: {reason}",
                        owner()
                    )));
                }
            }
        }
        let selects_per_device = offer.slice.spec.per_device_node_selection;
        Ok(!selects_per_device || pools::is_device_accessible(&offer.devices()[device], self.node))
    }

    /// Returns whether the device has enough capacity for the choice. Other allocations and the selected requests
    /// already consume the amounts in `consumed`.
    fn suffices(
        &self,
        claim: &ResourceClaim,
        choice: &Choice,
        offer: &Offer,
        device: usize,
        consumed: [Option<&Amounts>; 2],
    ) -> Result<bool, Failure> {
        let total = &offer.devices()[device].capacity;
        capacity::suffices(choice.capacity.as_ref(), total, consumed).map_err(|reason| {
            Failure::Fatal(format!(
                "claim {}, request {}: checking capacity for device {}: {reason}",
                claim_name(claim),
                choice.name(),
                offer.ids[device]
            ))
        })
    }

    /// Selects the device, and returns how to undo the selection. If the device is not available, changes nothing and
    /// returns `None`.
    fn select(
        &mut self,
        cursor: Cursor,
        position: DevicePosition,
        violation: ConstraintViolation,
    ) -> Result<Option<Undo<'a>>, Failure> {
        let choice = self.choice(cursor);
        let offer: &'a Offer = self.pools[position.pool].offers[position.offer];
        let device = &offer.devices()[position.device];
        let id: &'a str = &offer.ids[position.device];
        let is_shared = device.allow_multiple_allocations;
        // A claim may get several shares of a shared device by admin access.
        if !(choice.admin_access && is_shared) && self.is_unavailable(choice, id, cursor.claim) {
            return Ok(None);
        }
        let was_shared = self.consumed_capacity.contains_key(id);
        let mut undo = Undo {
            consumed_counters: false,
            added_claim: false,
            consumed_capacity: None,
            was_shared,
            cursor,
            position,
            device,
        };
        // All shares of a device consume its counters only once.
        let counters_are_consumed =
            is_shared && (self.in_use.consumed_capacity(id).is_some() || was_shared);
        if !counters_are_consumed && !device.consumes_counters.is_empty() {
            if !self.consume_counters(position.pool, device) {
                return Ok(None);
            }
            undo.consumed_counters = true;
        }
        let mut taints = device.taints.iter().chain(self.inventory.taints_of(offer, device));
        if taints.any(|taint| forbids(taint, &choice.tolerations)) {
            self.undo_counters(&undo);
            return Ok(None);
        }
        if !self.add_to_constraints(cursor, choice, offer.driver(), device) {
            self.undo_counters(&undo);
            if violation == ConstraintViolation::IsFatal {
                return Err(Failure::Fatal(format!(
                    "claim {}, request {}: cannot add device {id} because a claim constraint would not be satisfied",
                    claim_name(&self.claims[cursor.claim].claim),
                    choice.name()
                )));
            }
            return Ok(None);
        }
        let consumed = [self.in_use.consumed_capacity(id), self.consumed_capacity.get(id)];
        if !self.suffices(
            &self.claims[cursor.claim].claim,
            choice,
            offer,
            position.device,
            consumed,
        )? {
            self.remove_from_constraints(cursor, choice);
            self.undo_counters(&undo);
            return Ok(None);
        }
        if is_shared {
            let consumed = capacity::consumed(choice.capacity.as_ref(), &device.capacity)
                .map_err(Failure::Fatal)?;
            let sums = self.consumed_capacity.entry(id).or_default();
            for (name, amount) in &consumed {
                *sums.entry(name.clone()).or_insert(Quantity::ZERO) += *amount;
            }
            undo.consumed_capacity = Some(consumed);
        } else {
            self.claims_of_device.entry(id).or_default().push(cursor.claim);
            undo.added_claim = true;
        }
        self.selected[cursor.claim].push(SelectedDevice {
            request_index: cursor.request,
            choice_index: cursor.choice,
            offer,
            device,
            consumed: undo.consumed_capacity.clone(),
        });
        Ok(Some(undo))
    }

    /// Reverts the selection of a device.
    fn undo(&mut self, undo: &Undo<'a>) {
        let cursor = undo.cursor;
        self.selected[cursor.claim].pop();
        let id: &'a str = {
            let offer: &'a Offer = self.pools[undo.position.pool].offers[undo.position.offer];
            &offer.ids[undo.position.device]
        };
        if let Some(consumed) = &undo.consumed_capacity {
            if undo.was_shared {
                let sums = self.consumed_capacity.entry(id).or_default();
                for (name, amount) in consumed {
                    *sums.entry(name.clone()).or_insert(Quantity::ZERO) -= *amount;
                }
            } else {
                self.consumed_capacity.remove(id);
            }
        }
        if undo.added_claim
            && let Some(claims) = self.claims_of_device.get_mut(id)
        {
            claims.pop();
        }
        self.remove_from_constraints(cursor, self.choice(cursor));
        self.undo_counters(undo);
    }

    /// Reverts the consumption of counters by a selected device.
    fn undo_counters(&mut self, undo: &Undo<'a>) {
        if undo.consumed_counters {
            let consumed = self.consumed_counters.entry(undo.position.pool).or_default();
            for_each_counter(undo.device, |key, amount| {
                *consumed.entry(key).or_insert(Quantity::ZERO) -= amount;
            });
        }
    }

    /// Adds the device to all of the claim's constraints. If it violates a constraint, adds it to none and returns
    /// `false`.
    fn add_to_constraints(
        &mut self,
        cursor: Cursor,
        choice: &Choice,
        driver: &str,
        device: &'a Device,
    ) -> bool {
        let constraints = &mut self.constraints[cursor.claim];
        let violated_index = constraints.iter_mut().position(|constraint| {
            !constraint.add(&choice.request_name, choice.subrequest_name.as_deref(), driver, device)
        });
        if let Some(index) = violated_index {
            for constraint in constraints[..index].iter_mut().rev() {
                constraint.remove(&choice.request_name, choice.subrequest_name.as_deref());
            }
        }
        violated_index.is_none()
    }

    /// Removes the device that was added last from all of the claim's constraints.
    fn remove_from_constraints(&mut self, cursor: Cursor, choice: &Choice) {
        for constraint in self.constraints[cursor.claim].iter_mut().rev() {
            constraint.remove(&choice.request_name, choice.subrequest_name.as_deref());
        }
    }

    /// Consumes the device's counters. If the pool does not have enough left, consumes none and returns `false`.
    fn consume_counters(&mut self, pool: usize, device: &'a Device) -> bool {
        if !self.available_counters.contains_key(&pool) {
            let available = self.available_counters_of(pool);
            self.available_counters.insert(pool, available);
        }
        let consumed = self.consumed_counters.entry(pool).or_default();
        for_each_counter(device, |key, amount| {
            *consumed.entry(key).or_insert(Quantity::ZERO) += amount;
        });
        let are_sufficient = self.available_counters[&pool].iter().all(|(key, available)| {
            consumed.get(key).copied().unwrap_or(Quantity::ZERO) <= *available
        });
        if !are_sufficient {
            for_each_counter(device, |key, amount| {
                *consumed.entry(key).or_insert(Quantity::ZERO) -= amount;
            });
        }
        are_sufficient
    }

    /// Returns the counters of a pool minus those that devices in use consume.
    fn available_counters_of(&self, pool: usize) -> Counters<'a> {
        let pool = &self.pools[pool];
        let mut available = Counters::new();
        for (set, counters) in &pool.counters {
            for (name, counter) in counters.counters.iter() {
                available.insert((*set, name), counter.value);
            }
        }
        for offer in pool.offers.iter().chain(&pool.inaccessible_offers) {
            let offer: &'a Offer = offer;
            for (device, id) in offer.devices().iter().zip(&*offer.ids) {
                if !device.consumes_counters.is_empty() && self.in_use.contains(id) {
                    for_each_counter(device, |key, amount| {
                        if let Some(value) = available.get_mut(&key) {
                            *value -= amount;
                        }
                    });
                }
            }
        }
        available
    }

    /// Returns the selected devices of each claim.
    fn results(self) -> Vec<AllocatedDevices<'a>> {
        let claims = self.selected.into_iter().zip(self.choices);
        claims.map(|(devices, choices)| AllocatedDevices { devices, choices }).collect()
    }
}

/// Returns the constraints of a claim. Fails if one has an unknown type.
fn constraints(claim: &ResourceClaim) -> Result<Vec<Constraint<'_>>, Failure> {
    let build = |(index, constraint)| {
        Constraint::new(constraint).ok_or_else(|| {
            Failure::Fatal(format!(
                "claim {}, constraint #{index}: empty constraint (unsupported constraint type?)",
                claim_name(claim)
            ))
        })
    };
    claim.spec.devices.constraints.iter().enumerate().map(build).collect()
}

/// Calls `f` with the counter set and name, and with the value, of each counter that the device consumes.
fn for_each_counter<'a>(device: &'a Device, mut f: impl FnMut((&'a str, &'a str), Quantity)) {
    for consumed in &device.consumes_counters {
        for (name, counter) in consumed.counters.iter() {
            f((&consumed.counter_set, name), counter.value);
        }
    }
}

/// Returns whether the taint prevents that a request with these tolerations gets the device.
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
pub(super) fn names(
    allocated: &[AllocatedDevices<'_>],
    claims: &[Arc<ClaimRequests>],
) -> Vec<String> {
    let mut names = Vec::new();
    for (allocated, claim_requests) in allocated.iter().zip(claims) {
        for selected in &allocated.devices {
            let choice = &claim_requests.requests[selected.request_index][selected.choice_index];
            let pool = selected.offer.pool();
            let device = &selected.device.name;
            names.push(format!("{}={pool}/{device}", choice.full_name()));
        }
    }
    names
}
