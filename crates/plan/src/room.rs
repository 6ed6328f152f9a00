//! Whether a node has room for one more pod, by what pods ask for. As the scheduler counts it, as far as that can be known.

use std::collections::BTreeMap;

use dapple_edit::amount::nanos;
use serde_json::Value;

/// Amounts of resources, in billionths.
type Amounts = BTreeMap<String, i128>;

/// What a pod asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests(Amounts);

impl Requests {
    /// Of a pod, or a template, with this spec.
    #[must_use]
    pub fn of(spec: &Value) -> Self {
        Self(requests(spec))
    }
}

/// What a node has left for pods.
#[derive(Debug, Clone)]
pub struct Room {
    free: Amounts,
    /// So many more pods it takes, whatever they ask for.
    pods: i128,
}

impl Room {
    /// Of a node without pods.
    #[must_use]
    pub fn of(allocatable: &Value) -> Self {
        let free = amounts(allocatable);
        let pods = free.get("pods").map_or(i128::MAX, |most| most / 1_000_000_000);
        Self { free, pods }
    }

    /// A pod is there.
    pub fn take(&mut self, pod: &Requests) {
        self.pods = self.pods.saturating_sub(1);
        for (resource, amount) in &pod.0 {
            let free = self.free.entry(resource.clone()).or_insert(0);
            *free = free.saturating_sub(*amount);
        }
    }

    /// How many more pods that ask for this it takes.
    #[must_use]
    pub fn holds(&self, wanted: &Requests) -> usize {
        let free = |resource: &str| self.free.get(resource).copied().unwrap_or(0);
        let asked = wanted.0.iter().filter(|(_, amount)| **amount > 0);
        let times = asked.map(|(resource, amount)| free(resource) / amount);
        let most = times.fold(self.pods, i128::min);
        usize::try_from(most.max(0)).unwrap_or(usize::MAX)
    }
}

/// Whether a node that has this for pods has room for one more that asks for this, beside those that are there, and those that are
/// coming: as many of these as it holds are taken to go to it, and are taken off the list.
#[must_use]
pub fn has_room<'p>(
    mut room: Room,
    there: impl Iterator<Item = &'p Requests>,
    coming: &mut Vec<Requests>,
    wanted: &Requests,
) -> bool {
    there.for_each(|pod| room.take(pod));
    coming.retain(|requests| {
        let goes_here = room.holds(requests) > 0;
        if goes_here {
            room.take(requests);
        }
        !goes_here
    });
    room.holds(wanted) > 0
}

/// What a pod asks for: all its containers together, sidecars among the init containers included, or the greatest of the init
/// containers that run before them, beside the sidecars that run already.
fn requests(spec: &Value) -> Amounts {
    let list = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
    let of = |container: &Value| amounts(&container["resources"]["requests"]);
    let (mut sidecars, mut before) = (Amounts::new(), Amounts::new());
    for container in list("initContainers") {
        if container["restartPolicy"] == "Always" {
            sidecars = combined(sidecars, of(&container), i128::saturating_add);
            before = combined(before, sidecars.clone(), i128::max);
        } else {
            let with_sidecars = combined(of(&container), sidecars.clone(), i128::saturating_add);
            before = combined(before, with_sidecars, i128::max);
        }
    }
    let running = list("containers").iter().map(of).fold(sidecars, |sum, one| combined(sum, one, i128::saturating_add));
    let all = combined(running, before, i128::max);
    combined(all, amounts(&spec["overhead"]), i128::saturating_add)
}

fn amounts(map: &Value) -> Amounts {
    let entries = map.as_object().into_iter().flatten();
    entries.filter_map(|(resource, amount)| Some((resource.clone(), nanos(amount)?))).collect()
}

fn combined(mut one: Amounts, other: Amounts, combine: impl Fn(i128, i128) -> i128) -> Amounts {
    for (resource, amount) in other {
        let known = one.entry(resource).or_insert(0);
        *known = combine(*known, amount);
    }
    one
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(cpu: &str) -> Requests {
        Requests::of(&json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}))
    }

    #[test]
    fn a_node_has_room_for_what_is_left() {
        let node = Room::of(&json!({"cpu": "1", "memory": "1Gi", "pods": "3"}));
        let has_room =
            |there: &[Requests], wanted: &Requests| has_room(node.clone(), there.iter(), &mut Vec::new(), wanted);
        assert!(has_room(&[pod("600m")], &pod("400m")));
        assert!(!has_room(&[pod("600m")], &pod("401m")));
        assert!(!has_room(&[pod("0"), pod("0"), pod("0")], &pod("0")), "it has as many as it takes");
        let gpu = Requests::of(&json!({"containers": [{"resources": {"requests": {"nvidia.com/gpu": 1}}}]}));
        assert!(!has_room(&[], &gpu), "it has none");
    }

    #[test]
    fn those_that_are_coming_take_the_first_room_that_there_is() {
        let node = Room::of(&json!({"cpu": "1", "pods": "9"}));
        let mut coming: Vec<Requests> = ["600m", "2", "600m"].map(pod).into();
        assert!(!has_room(node.clone(), [].iter(), &mut coming, &pod("500m")), "one of them goes here");
        assert_eq!(coming.len(), 2, "one is too large, and one has no room beside the other");
        assert!(has_room(node, [].iter(), &mut coming, &pod("400m")));
        assert_eq!(coming.len(), 1);
    }

    #[test]
    fn it_holds_as_many_as_each_resource_allows() {
        let mut room = Room::of(&json!({"cpu": "4", "memory": "1Gi", "pods": "10"}));
        let wanted = |requests: Value| Requests::of(&json!({"containers": [{"resources": {"requests": requests}}]}));
        assert_eq!(room.holds(&wanted(json!({"cpu": "500m"}))), 8);
        assert_eq!(room.holds(&wanted(json!({"cpu": "500m", "memory": "300Mi"}))), 3);
        assert_eq!(room.holds(&wanted(json!({"cpu": 0}))), 10, "what is not asked for does not count");
        room.take(&wanted(json!({"cpu": "5"})));
        assert_eq!(room.holds(&wanted(json!({"cpu": "1m"}))), 0, "more than there is is taken");
        assert_eq!(room.holds(&wanted(json!({}))), 9);
    }

    #[test]
    fn init_containers_count_by_the_greatest_and_sidecars_with_the_rest() {
        let container =
            |cpu: &str, policy: Option<&str>| json!({"resources": {"requests": {"cpu": cpu}}, "restartPolicy": policy});
        let spec =
            |init: Value| requests(&json!({"initContainers": init, "containers": [container("2", None)]}))["cpu"];
        let cpus = |number: i128| number * 1_000_000_000;
        assert_eq!(spec(json!([container("1", None)])), cpus(2));
        assert_eq!(spec(json!([container("5", None), container("3", None)])), cpus(5));
        assert_eq!(spec(json!([container("1", Some("Always"))])), cpus(3));
        assert_eq!(spec(json!([container("1", Some("Always")), container("3", None)])), cpus(4));
    }
}
