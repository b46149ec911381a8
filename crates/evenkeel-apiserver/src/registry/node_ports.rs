//! Allocation of a Service's node ports: one for each port, and one for the health check.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | A NodePort or LoadBalancer gets a node port for each port; `allocateLoadBalancerNodePorts: false` turns that off | `allocates_node_ports` |
//! | A client may request a node port in the range | `allocate` |
//! | Ports of the same number in several protocols get the same node port when the Service is created | `create` |
//! | A LoadBalancer with `externalTrafficPolicy: Local` gets a `healthCheckNodePort` | `needs_health_check` |

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::value::{get, int, list, set, text};
use serde_json::Value;

/// Range of node ports.
pub(super) const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

/// A dry run allocates the numbers after this one, as in upstream.
const DRY_RUN_START: i64 = 32768;

/// Returns whether the Service gets node ports even if the client does not request them.
///
/// Upstream: `shouldAllocateNodePorts`.
pub(super) fn allocates_node_ports(service: &Value) -> bool {
    match text(service, "spec.type") {
        "NodePort" => true,
        "LoadBalancer" => {
            get(service, "spec.allocateLoadBalancerNodePorts") != Some(&Value::Bool(false))
        }
        _ => false,
    }
}

/// Returns whether the Service has a node port for its health check.
///
/// Upstream: `NeedsHealthCheck`.
pub(super) fn needs_health_check(service: &Value) -> bool {
    text(service, "spec.type") == "LoadBalancer"
        && text(service, "spec.externalTrafficPolicy") == "Local"
}

/// Returns the node port of an entry of `spec.ports`, if it has one.
pub(super) fn node_port(port: &Value) -> Option<i64> {
    int(port, "nodePort").filter(|port| *port != 0)
}

/// Returns the node ports of a Service's ports.
pub(super) fn requested_node_ports(service: &Value) -> BTreeSet<i64> {
    list(service, "spec.ports").iter().filter_map(node_port).collect()
}

/// Reason why a Service does not get its node ports.
#[derive(Debug)]
pub(super) enum NodePortError {
    /// A requested node port is not free: 422.
    Invalid(Box<FieldError>),
    /// The health check's port is not free, or the range is full: 500.
    Internal(String),
    /// Error that upstream returns without a status: 500 without a reason.
    Unknown(String),
}

/// Allocation of the node ports of one write.
pub(super) struct NodePorts<'a> {
    /// Returns whether a stored Service has the port.
    is_taken: &'a dyn Fn(u16) -> bool,
    /// Port at which the search for a free one begins.
    start: u16,
    /// Ports that this write allocates.
    allocated: BTreeSet<i64>,
    /// Whether the write is a dry run. As in upstream, it may allocate ports outside the range.
    dry_run: bool,
}

impl<'a> NodePorts<'a> {
    pub(super) fn new(is_taken: &'a dyn Fn(u16) -> bool, start: u16, dry_run: bool) -> Self {
        Self { is_taken, start, allocated: BTreeSet::new(), dry_run }
    }

    /// Allocates the node ports of a new Service.
    ///
    /// Upstream: `initNodePorts`.
    pub(super) fn create(&mut self, service: &mut Value) -> Result<(), NodePortError> {
        let allocates = allocates_node_ports(service);
        // First node port that is requested for each port number.
        let mut requested_by_number: BTreeMap<i64, i64> = BTreeMap::new();
        for port in list(service, "spec.ports") {
            if let Some(node_port) = node_port(port) {
                requested_by_number.entry(port_number(port)).or_insert(node_port);
            }
        }
        let mut allocated_by_number: BTreeMap<i64, i64> = BTreeMap::new();
        self.try_for_each_port(service, &mut |ports, index, port| {
            let requested = node_port(port);
            if requested.is_none() && !allocates {
                return Ok(());
            }
            let number = port_number(port);
            let chosen = match (allocated_by_number.get(&number), requested) {
                // Entries with the same port number and different protocols share a node port.
                (Some(shared), None) => *shared,
                (Some(shared), Some(requested)) => {
                    if *shared != requested {
                        ports.allocate_requested(index, requested)?;
                    }
                    requested
                }
                (None, _) => {
                    let chosen = match requested_by_number.get(&number) {
                        Some(requested) => ports.allocate_requested(index, *requested)?,
                        None => ports.allocate_next()?,
                    };
                    allocated_by_number.insert(number, chosen);
                    chosen
                }
            };
            set(port, "nodePort", chosen);
            Ok(())
        })?;
        if needs_health_check(service) { self.allocate_health_check(service) } else { Ok(()) }
    }

    /// Allocates the node ports that an update needs in addition to those of the old Service.
    ///
    /// Upstream: `updateNodePorts`, `updateHealthCheckNodePort`.
    pub(super) fn update(&mut self, service: &mut Value, old: &Value) -> Result<(), NodePortError> {
        let allocates = allocates_node_ports(service);
        let old_node_ports = requested_node_ports(old);
        let mut seen: BTreeSet<(String, i64)> = BTreeSet::new();
        self.try_for_each_port(service, &mut |ports, index, port| {
            let chosen = match node_port(port) {
                Some(requested) => {
                    if !old_node_ports.contains(&requested) && !ports.has_allocated(requested) {
                        ports.allocate_requested(index, requested)?;
                    }
                    requested
                }
                None if allocates => {
                    let chosen = ports.allocate_next()?;
                    set(port, "nodePort", chosen);
                    chosen
                }
                None => return Ok(()),
            };
            let protocol = text(port, "protocol");
            if !seen.insert((protocol.to_owned(), chosen)) {
                let why = format!("duplicate nodePort: {{{protocol} {chosen}}}");
                return Err(NodePortError::Unknown(why));
            }
            Ok(())
        })?;
        if needs_health_check(service) && !needs_health_check(old) {
            return self.allocate_health_check(service);
        }
        Ok(())
    }

    /// Visits the ports of a Service whose type has node ports, until an error.
    fn try_for_each_port(
        &mut self,
        service: &mut Value,
        visit: &mut dyn FnMut(&mut Self, usize, &mut Value) -> Result<(), NodePortError>,
    ) -> Result<(), NodePortError> {
        if !matches!(text(service, "spec.type"), "NodePort" | "LoadBalancer") {
            return Ok(());
        }
        let ports = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
        let mut ports = ports.into_iter().flatten().enumerate();
        ports.try_for_each(|(index, port)| visit(self, index, port))
    }

    /// Allocates the health check's port: the requested port, or any free one.
    ///
    /// Upstream: `allocHealthCheckNodePort`.
    fn allocate_health_check(&mut self, service: &mut Value) -> Result<(), NodePortError> {
        let requested = int(service, "spec.healthCheckNodePort").filter(|port| *port != 0);
        if let Some(port) = requested {
            return self.allocate(port).map_err(|why| {
                NodePortError::Internal(format!(
                    "failed to allocate requested HealthCheck NodePort {port}: {why}"
                ))
            });
        }
        let port = self.allocate_any().ok_or_else(|| {
            NodePortError::Internal(
                "failed to allocate a HealthCheck NodePort 0: range is full".to_owned(),
            )
        })?;
        set(service, "spec.healthCheckNodePort", port);
        Ok(())
    }

    /// Returns whether this write has already allocated the port.
    fn has_allocated(&self, port: i64) -> bool {
        self.allocated.contains(&port)
    }

    /// Allocates and returns the port that `spec.ports[index]` requests.
    fn allocate_requested(&mut self, index: usize, port: i64) -> Result<i64, NodePortError> {
        self.allocate(port).map(|()| port).map_err(|why| {
            let field = format!("spec.ports[{index}].nodePort");
            NodePortError::Invalid(Box::new(FieldError::invalid(field, port, why)))
        })
    }

    /// Allocates any free port for an entry of `spec.ports`.
    fn allocate_next(&mut self) -> Result<i64, NodePortError> {
        self.allocate_any().ok_or_else(|| {
            NodePortError::Internal("failed to allocate a nodePort: range is full".to_owned())
        })
    }

    /// Allocates any free port. Returns `None` if the range is full.
    ///
    /// Upstream: `PortAllocationOperation.AllocateNext`.
    fn allocate_any(&mut self) -> Option<i64> {
        let is_free =
            |port: i64| !self.allocated.contains(&port) && !self.is_of_stored_service(port);
        let free = if self.dry_run {
            let after = self.allocated.last().unwrap_or(&DRY_RUN_START).saturating_add(1);
            // As in upstream, the search ends before 100, so that it only follows a requested port below 99.
            (after..100).find(|port| is_free(*port)).unwrap_or(after)
        } else {
            let (start, end) = (i64::from(self.start), i64::from(*NODE_PORTS.end()));
            let wrapped = i64::from(*NODE_PORTS.start())..start;
            (start..=end).chain(wrapped).find(|port| is_free(*port))?
        };
        self.allocated.insert(free);
        Some(free)
    }

    /// Returns whether a stored Service has the port.
    fn is_of_stored_service(&self, port: i64) -> bool {
        u16::try_from(port).is_ok_and(|port| (self.is_taken)(port))
    }

    /// Allocates a port. The error has upstream's message.
    ///
    /// Upstream: `PortAllocationOperation.Allocate`.
    fn allocate(&mut self, port: i64) -> Result<(), String> {
        let is_in_range = u16::try_from(port).is_ok_and(|port| NODE_PORTS.contains(&port));
        if !is_in_range && !self.dry_run {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                NODE_PORTS.start(),
                NODE_PORTS.end()
            ));
        }
        if self.is_of_stored_service(port) || !self.allocated.insert(port) {
            return Err("provided port is already allocated".to_owned());
        }
        Ok(())
    }
}

fn port_number(port: &Value) -> i64 {
    int(port, "port").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a Service with these ports: protocol, number and node port.
    fn service(kind: &str, ports: &[(&str, i64, i64)]) -> Value {
        let port = |(protocol, port, node_port): &(&str, i64, i64)| json!({"protocol": protocol, "port": port, "nodePort": node_port});
        let ports: Vec<Value> = ports.iter().map(port).collect();
        json!({"spec": {"type": kind, "ports": ports}})
    }

    /// Returns the node ports and the health check's port, or the error. Only 30080 is taken, and the search begins at
    /// 30500.
    fn allocated(mut new: Value, old: Option<&Value>) -> Result<Vec<i64>, String> {
        let is_taken = |port| port == 30080;
        let mut ports = NodePorts::new(&is_taken, 30500, false);
        let result = match old {
            None => ports.create(&mut new),
            Some(old) => ports.update(&mut new, old),
        };
        result.map_err(|error| match error {
            NodePortError::Invalid(error) => error.to_string(),
            NodePortError::Internal(why) | NodePortError::Unknown(why) => why,
        })?;
        let health = int(&new, "spec.healthCheckNodePort");
        let ports = list(&new, "spec.ports").iter().map(|port| node_port(port).unwrap_or(0));
        Ok(ports.chain(health).collect())
    }

    #[test]
    fn a_new_service_gets_requested_ports_and_protocols_share_a_node_port() {
        let taken = "provided port is already allocated";
        let mut local = service("LoadBalancer", &[("TCP", 80, 0)]);
        local["spec"]["externalTrafficPolicy"] = json!("Local");
        let with = |field: &str, value: Value| {
            let mut service = local.clone();
            service["spec"][field] = value;
            service
        };
        let internal = |port: i64, why: &str| {
            Err(format!("failed to allocate requested HealthCheck NodePort {port}: {why}"))
        };
        let range =
            "provided port is not in the valid range. The range of valid ports is 30000-32767";
        for (new, expected) in [
            (service("ClusterIP", &[("TCP", 80, 0)]), Ok(vec![0])),
            (service("NodePort", &[("TCP", 80, 0), ("TCP", 81, 0)]), Ok(vec![30500, 30501])),
            (service("NodePort", &[("TCP", 80, 0), ("UDP", 80, 0)]), Ok(vec![30500, 30500])),
            (service("NodePort", &[("TCP", 53, 0), ("UDP", 53, 30053)]), Ok(vec![30053, 30053])),
            (service("NodePort", &[("TCP", 53, 30053), ("UDP", 53, 0)]), Ok(vec![30053, 30053])),
            (
                service("NodePort", &[("TCP", 53, 30053), ("UDP", 53, 30054)]),
                Ok(vec![30053, 30054]),
            ),
            (
                service("NodePort", &[("TCP", 53, 30053), ("UDP", 54, 30053)]),
                Err(format!("spec.ports[1].nodePort: Invalid value: 30053: {taken}")),
            ),
            (
                service("NodePort", &[("TCP", 53, 0), ("UDP", 53, 30080), ("TCP", 54, 1)]),
                Err(format!("spec.ports[0].nodePort: Invalid value: 30080: {taken}")),
            ),
            (local.clone(), Ok(vec![30500, 30501])),
            (with("allocateLoadBalancerNodePorts", json!(false)), Ok(vec![0, 30500])),
            (with("healthCheckNodePort", json!(30080)), internal(30080, taken)),
            (with("healthCheckNodePort", json!(30500)), internal(30500, taken)),
            (with("healthCheckNodePort", json!(80)), internal(80, range)),
        ] {
            assert_eq!(allocated(new.clone(), None), expected, "{new}");
        }
    }

    #[test]
    fn an_update_allocates_only_new_node_ports() {
        let old = service("NodePort", &[("TCP", 80, 30080), ("UDP", 81, 30081)]);
        let taken = "provided port is already allocated";
        for (new, expected) in [
            (service("NodePort", &[("TCP", 85, 30080), ("UDP", 80, 0)]), Ok(vec![30080, 30500])),
            (service("NodePort", &[("TCP", 85, 0), ("UDP", 85, 0)]), Ok(vec![30500, 30501])),
            (
                service("NodePort", &[("TCP", 85, 30190), ("UDP", 80, 30190)]),
                Ok(vec![30190, 30190]),
            ),
            (
                service("NodePort", &[("TCP", 85, 30080), ("TCP", 80, 30080)]),
                Err("duplicate nodePort: {TCP 30080}".to_owned()),
            ),
            (service("ClusterIP", &[("TCP", 85, 31000)]), Ok(vec![31000])),
        ] {
            assert_eq!(allocated(new.clone(), Some(&old)), expected, "{new}");
        }
        let other = service("NodePort", &[("TCP", 80, 30081)]);
        let new = service("NodePort", &[("TCP", 80, 30081), ("TCP", 81, 30080)]);
        let error = format!("spec.ports[1].nodePort: Invalid value: 30080: {taken}");
        assert_eq!(allocated(new, Some(&other)), Err(error));
    }

    #[test]
    fn a_dry_run_gives_any_number() {
        let is_taken = |port| port == 30080;
        let mut ports = NodePorts::new(&is_taken, 30500, true);
        assert_eq!(ports.allocate_next().ok(), Some(32769));
        assert_eq!(ports.allocate_next().ok(), Some(32770));
        let mut ports = NodePorts::new(&is_taken, 30500, true);
        assert_eq!(ports.allocate(2), Ok(()));
        assert_eq!(ports.allocate_next().ok(), Some(3));
        assert!(ports.allocate(3).is_err() && ports.allocate(30080).is_err());
    }
}
