"""Errors for misuse of the processor API, with the conditions and words of Spark's state server."""

from __future__ import annotations

from pyspark.errors import PySparkRuntimeError

_MESSAGES = {
    "STATEFUL_PROCESSOR_DUPLICATE_STATE_VARIABLE_DEFINED": (
        "State variable with name {stateVarName} has already been defined in the "
        "StatefulProcessor.",
        "42802",
    ),
    "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_HANDLE_STATE": (
        "Failed to perform stateful processor operation={operationType} with invalid handle "
        "state={handleState}.",
        "42802",
    ),
    "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_TIME_MODE": (
        "Failed to perform stateful processor operation={operationType} with invalid "
        "timeMode={timeMode}",
        "42802",
    ),
    "STATEFUL_PROCESSOR_INCORRECT_TIME_MODE_TO_ASSIGN_TTL": (
        "Cannot use TTL for state={stateName} in timeMode={timeMode}, "
        "use TimeMode.ProcessingTime() instead.",
        "42802",
    ),
    "STATEFUL_PROCESSOR_TTL_DURATION_MUST_BE_POSITIVE": (
        "TTL duration must be greater than zero for State store operation={operationType} on "
        "state={stateName}.",
        "42802",
    ),
    "STATE_STORE_UNSUPPORTED_VARIABLE": (
        "State variable {stateName} is not known here: it was not defined by init in the driver, "
        "or was deleted. Define the same state variables in every run of init.",
        "XXKST",
    ),
    "INTERNAL_ERROR_TWS": (
        "Implicit key not found in state store. Use state and timers only inside "
        "handleInputRows, handleExpiredTimer and handleInitialState.",
        "XX000",
    ),
    "ILLEGAL_STATE_STORE_VALUE.EMPTY_LIST_VALUE": (
        "Illegal value provided to the State Store. Cannot write empty list values to State "
        "Store for StateName {stateName}. Use clear() to empty a list.",
        "42601",
    ),
}


def misuse(action: str, condition: str, **parameters: object) -> PySparkRuntimeError:
    """`[CONDITION] Error <action>: message`, as PySpark's clients raise it."""
    template, sql_state = _MESSAGES[condition]
    error = PySparkRuntimeError(
        f"Error {action}: {template.format(**parameters)} SQLSTATE: {sql_state}"
    )
    error._errorClass = condition
    return error
