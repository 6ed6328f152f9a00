//! Whether a node has room for one more pod, by what pods ask for. As the scheduler counts it, as far as that can be known.

use std::collections::BTreeMap;

use dapple_edit::amount::nanos;
use serde_json::Value;

/// Amounts of resources, in billionths.
type Amounts = BTreeMap<String, i128>;

/// What a node has for one more pod beside those that are there.
#[must_use]
pub fn has_room(node: &Value, pods: &[Value], wanted: &Value) -> bool {
    let allocatable = amounts(&node["status"]["allocatable"]);
    let is_live =
        |pod: &&Value| !["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default());
    let there: Vec<&Value> = pods.iter().filter(is_live).collect();
    let most_pods = allocatable.get("pods").map_or(i128::MAX, |most| most / 1_000_000_000);
    if i128::try_from(there.len()).is_ok_and(|count| count >= most_pods) {
        return false;
    }
    let taken = there
        .iter()
        .map(|pod| requests(&pod["spec"]))
        .fold(Amounts::new(), |sum, one| combined(sum, one, i128::saturating_add));
    requests(&wanted["spec"]).iter().all(|(resource, amount)| {
        let free = allocatable.get(resource).copied().unwrap_or(0) - taken.get(resource).copied().unwrap_or(0);
        *amount <= free
    })
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

    fn pod(cpu: &str) -> Value {
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
    }

    #[test]
    fn a_node_has_room_for_what_is_left() {
        let node = json!({"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "3"}}});
        assert!(has_room(&node, &[pod("600m")], &pod("400m")));
        assert!(!has_room(&node, &[pod("600m")], &pod("401m")));
        let mut ended = pod("600m");
        ended["status"]["phase"] = "Succeeded".into();
        assert!(has_room(&node, &[ended], &pod("1")));
        assert!(!has_room(&node, &[pod("0"), pod("0"), pod("0")], &pod("0")), "it has as many as it takes");
        let gpu = json!({"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": 1}}}]}});
        assert!(!has_room(&node, &[], &gpu), "it has none");
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
