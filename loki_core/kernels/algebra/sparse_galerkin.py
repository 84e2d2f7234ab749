"""The coarse matrix of smoothed aggregation, row by row, from the prolongator's rows.

    A_c = P' A P,    P = S P0,    S = I - omega D^-1 A,    P0 = indicators of the aggregates

For a symmetric A the row of aggregate c is (A p)' P, p = S 1_c the column of c: two products with a
vector of few entries, in small hash tables that stay in the cache, then one with the rows of P.
These are made first and thrown away afterwards; nothing else of the fine size is stored. Rows of
neighbouring ranks come in a second, extra matrix.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.jit import device, inlined, parallel_kernel, prange


@inlined
def add_entry(keys, sums, used, count, key, value):
    """Add value to the entry of key; return the number of entries."""
    mask = np.uint32(keys.shape[0] - 1)
    place = (np.uint32(key) * np.uint32(2654435761) >> np.uint32(15)) & mask
    while True:
        found = keys[place]
        if found == key:
            sums[place] += value
            return count
        if found < 0:
            if count < used.shape[0]:  # a full table is found out by the caller
                keys[place] = key
                sums[place] = value
                used[count] = place
                return count + 1
            return count
        place = (place + np.uint32(1)) & mask


@inlined
def clear_entries(keys, used, count):
    """Empty the table."""
    for t in range(count):
        keys[used[t]] = -1


@inlined
def add_row(slices, columns, values, row, factor, keys, sums, used, count):
    """Add factor times a row of the matrix; return the number of entries."""
    row = np.uint32(row)
    one, three, seven = np.uint32(1), np.uint32(3), np.uint32(7)
    e = np.uint64(slices[row >> three]) + np.uint64(row & seven)
    end = np.uint64(slices[(row >> three) + one])
    while e < end:
        value = np.float64(values[e])
        if value != 0.0:
            count = add_entry(keys, sums, used, count, columns[e], factor * value)
        e += np.uint64(8)
    return count


@device
def spread(
    slices, columns, values, extra_slices, extra_columns, extra_values, rows, keys, sums, used,
    count, out_keys, out_sums, out_used,
):  # fmt: skip
    """Write A w to the empty out table; return its count."""
    made = 0
    for t in range(count):
        key, value = keys[used[t]], sums[used[t]]
        if key < rows:
            made = add_row(slices, columns, values, key, value, out_keys, out_sums, out_used, made)
        else:
            made = add_row(
                extra_slices, extra_columns, extra_values, key - rows, value, out_keys, out_sums,
                out_used, made,
            )  # fmt: skip
    return made


@device
def count_prolongator_row(slices, columns, values, row, own, aggregate, seen):
    """Number of aggregates that a row of P reaches; lists them in `seen`."""
    count = 0
    if own >= 0:
        seen[0] = own
        count = 1
    for e in range(slices[row >> 3] + (row & 7), slices[(row >> 3) + 1], 8):
        a = aggregate[columns[e]]
        if a >= 0 and values[e] != 0.0:
            place = 0
            while place < count and seen[place] != a:
                place += 1
            if place == count:
                seen[place] = a
                count += 1
    return count


@parallel_kernel
def prolongator_lengths(
    slices, columns, values, extra_slices, extra_columns, extra_values, rows, aggregate, longest,
    lengths,
):  # fmt: skip
    """Number of entries of each row of P, own rows first, then extra ones.

    Args: longest: entries of the longest row of A, and one more; lengths int32, out.
    """
    count = lengths.shape[0]
    for block in prange((count + 4095) // 4096):
        seen = np.empty(longest, dtype=np.int32)
        for i in range(4096 * block, min(4096 * block + 4096, count)):
            if i < rows:
                lengths[i] = count_prolongator_row(
                    slices, columns, values, i, aggregate[i], aggregate, seen
                )
            else:
                lengths[i] = count_prolongator_row(
                    extra_slices, extra_columns, extra_values, i - rows, aggregate[i], aggregate,
                    seen,
                )  # fmt: skip


@device
def fill_prolongator_row(
    slices, columns, values, row, own, factor, aggregate, begin, p_columns, p_values
):
    """Write a row of P = P0 - omega D^-1 A P0 from `begin` on."""
    end = begin
    if own >= 0:
        p_columns[begin] = own
        p_values[begin] = 1.0
        end += 1
    for e in range(slices[row >> 3] + (row & 7), slices[(row >> 3) + 1], 8):
        a = aggregate[columns[e]]
        value = np.float64(values[e])
        if a >= 0 and value != 0.0:
            place = begin
            while place < end and p_columns[place] != a:
                place += 1
            if place == end:
                p_columns[place] = a
                p_values[place] = 0.0
                end += 1
            p_values[place] -= factor * value


@parallel_kernel
def prolongator_rows(
    slices, columns, values, extra_slices, extra_columns, extra_values, rows, inverse_diagonal,
    omega, aggregate, p_starts, p_columns, p_values,
):  # fmt: skip
    """Write the rows of P, own rows first, then extra ones."""
    for i in prange(p_starts.shape[0] - 1):
        factor = omega * inverse_diagonal[i]
        if i < rows:
            fill_prolongator_row(
                slices, columns, values, i, aggregate[i], factor, aggregate, p_starts[i],
                p_columns, p_values,
            )  # fmt: skip
        else:
            fill_prolongator_row(
                extra_slices, extra_columns, extra_values, i - rows, aggregate[i], factor,
                aggregate, p_starts[i], p_columns, p_values,
            )  # fmt: skip


@device
def collapse(p_starts, p_columns, p_values, keys, sums, used, count, out_keys, out_sums, out_used):
    """Write w' P to the empty out table; return its count."""
    made = 0
    for t in range(np.uint64(count)):
        key, value = np.uint32(keys[np.uint32(used[t])]), sums[np.uint32(used[t])]
        for e in range(np.uint64(p_starts[key]), np.uint64(p_starts[key + np.uint32(1)])):
            made = add_entry(
                out_keys, out_sums, out_used, made, p_columns[e], value * p_values[e]
            )  # fmt: skip
    return made


@device
def coarse_row(
    slices, columns, values, extra_slices, extra_columns, extra_values, rows, inverse_diagonal,
    omega, p_starts, p_columns, p_values, starts, members, c, keys, sums, used, keys2, sums2, used2,
    width, place_of_row, out_columns, out_values,
):  # fmt: skip
    """Write the row of aggregate c, sorted by column; return its length, or -1 or -2 if too long.

    -1: the tables are full; -2: the row has more than `width` entries.
    """
    count = 0
    scale = 0.0
    for t in range(starts[c], starts[c + 1]):
        count = add_entry(keys, sums, used, count, members[t], 1.0)
        if inverse_diagonal[members[t]] > 0.0:
            scale = max(scale, 1.0 / inverse_diagonal[members[t]])
    limit = used.shape[0]
    second = spread(
        slices, columns, values, extra_slices, extra_columns, extra_values, rows, keys, sums, used,
        count, keys2, sums2, used2,
    )  # fmt: skip
    clear_entries(keys, used, count)
    for t in range(second):
        sums2[used2[t]] *= -omega * inverse_diagonal[keys2[used2[t]]]
    for t in range(starts[c], starts[c + 1]):
        second = add_entry(keys2, sums2, used2, second, members[t], 1.0)
    count = spread(
        slices, columns, values, extra_slices, extra_columns, extra_values, rows, keys2, sums2,
        used2, second, keys, sums, used,
    )  # fmt: skip
    full = max(second, count) >= limit
    clear_entries(keys2, used2, second)
    second = collapse(
        p_starts, p_columns, p_values, keys, sums, used, count, keys2, sums2, used2
    )  # fmt: skip
    clear_entries(keys, used, count)
    full = full or second >= limit
    magnitude = 0.0
    for t in range(second):
        magnitude = max(magnitude, abs(sums2[used2[t]]))
    if full or second > width:
        clear_entries(keys2, used2, second)
        return -1 if full else -2
    # A row that cancels to rounding belongs to a closed pocket: nothing is left to solve there.
    made = 0
    for t in range(second):
        column, value = keys2[used2[t]], sums2[used2[t]]
        if magnitude > 1e-6 * scale and abs(value) > 1e-7 * magnitude:
            place = place_of_row + made
            while place > place_of_row and out_columns[place - 1] > column:
                out_columns[place] = out_columns[place - 1]
                out_values[place] = out_values[place - 1]
                place -= 1
            out_columns[place] = column
            out_values[place] = value
            made += 1
    clear_entries(keys2, used2, second)
    return made


@parallel_kernel
def coarse_rows(
    slices, columns, values, extra_slices, extra_columns, extra_values, rows, inverse_diagonal,
    omega, p_starts, p_columns, p_values, starts, members, capacity, width, chosen, places, lengths,
    out_columns, out_values,
):  # fmt: skip
    """Compute chosen rows of the coarse matrix, each into `width` entries of a table.

    Args:
        slices, columns, values: The fine matrix; the extra ones hold rows of ghosts, numbered from
            `rows` on.
        inverse_diagonal: float32, of own rows and of ghosts that have an extra row.
        p_starts, p_columns, p_values: Rows of P, of the same rows; own aggregates come first.
        starts, members: Own rows of each own aggregate.
        capacity: Power of two, places in a hash table.
        chosen: Aggregates whose rows are computed.
        places: int64 [aggregates], where each row begins in the table.
        lengths: int32 [aggregates], out; negative where capacity (-1) or width (-2) was too small.
        out_columns, out_values: The table, out.
    """
    count = chosen.shape[0]
    for block in prange((count + 31) // 32):
        keys = np.full(capacity, -1, dtype=np.int32)
        keys2 = np.full(capacity, -1, dtype=np.int32)
        sums = np.empty(capacity, dtype=np.float64)
        sums2 = np.empty(capacity, dtype=np.float64)
        used = np.empty(capacity * 3 // 4, dtype=np.int32)
        used2 = np.empty(capacity * 3 // 4, dtype=np.int32)
        for n in range(32 * block, min(32 * block + 32, count)):
            c = chosen[n]
            lengths[c] = coarse_row(
                slices, columns, values, extra_slices, extra_columns, extra_values, rows,
                inverse_diagonal, omega, p_starts, p_columns, p_values, starts, members, c, keys,
                sums, used, keys2, sums2, used2, width, places[c], out_columns, out_values,
            )  # fmt: skip


@device
def energy_of_aggregate(
    slices, columns, values, extra_slices, extra_columns, extra_values, rows, inverse_diagonal,
    starts, members, c, keys, sums, used, keys2, sums2, used2, energies,
):  # fmt: skip
    """Put u . D^-1 u and t . A t into energies, u = A 1_c and t = D^-1 u; return if it had room."""
    count = 0
    for t in range(starts[c], starts[c + 1]):
        count = add_entry(keys, sums, used, count, members[t], 1.0)
    second = spread(
        slices, columns, values, extra_slices, extra_columns, extra_values, rows, keys, sums, used,
        count, keys2, sums2, used2,
    )  # fmt: skip
    clear_entries(keys, used, count)
    energies[0], energies[1] = 0.0, 0.0
    for t in range(second):
        place = used2[t]
        u = sums2[place]
        sums2[place] = inverse_diagonal[keys2[place]] * u
        energies[0] += u * sums2[place]
    count = spread(
        slices, columns, values, extra_slices, extra_columns, extra_values, rows, keys2, sums2,
        used2, second, keys, sums, used,
    )  # fmt: skip
    full = max(count, second) >= used.shape[0]
    for t in range(second):
        place = used2[t]
        key, value = keys2[place], sums2[place]
        energies[1] += value * entry_of(keys, sums, key)
    clear_entries(keys, used, count)
    clear_entries(keys2, used2, second)
    return not full


@inlined
def entry_of(keys, sums, key):
    """Value of a key, zero if it is not there."""
    mask = np.uint32(keys.shape[0] - 1)
    place = (np.uint32(key) * np.uint32(2654435761) >> np.uint32(15)) & mask
    while keys[place] >= 0:
        if keys[place] == key:
            return sums[place]
        place = (place + np.uint32(1)) & mask
    return 0.0


@parallel_kernel
def smoothing_energies(
    slices, columns, values, extra_slices, extra_columns, extra_values, rows, inverse_diagonal,
    starts, members, step, energies,
):  # fmt: skip
    """Energies of every step-th aggregate, from which the best damping follows.

    |S 1_c|_A^2 is least, summed over aggregates, for omega = sum energies[0] / sum energies[1].
    Aggregates with too many connections are left out.
    """
    for block in prange((energies.shape[0] + 15) // 16):
        keys = np.full(8192, -1, dtype=np.int32)
        keys2 = np.full(8192, -1, dtype=np.int32)
        sums = np.empty(8192, dtype=np.float64)
        sums2 = np.empty(8192, dtype=np.float64)
        used = np.empty(6144, dtype=np.int32)
        used2 = np.empty(6144, dtype=np.int32)
        pair = np.empty(2, dtype=np.float64)
        for n in range(16 * block, min(16 * block + 16, energies.shape[0])):
            fits = energy_of_aggregate(
                slices, columns, values, extra_slices, extra_columns, extra_values, rows,
                inverse_diagonal, starts, members, n * step, keys, sums, used, keys2, sums2, used2,
                pair,
            )  # fmt: skip
            energies[n, 0] = pair[0] if fits else 0.0
            energies[n, 1] = pair[1] if fits else 0.0


@parallel_kernel
def compact_rows(lengths, places, table_columns, table_values, slices, columns, values):
    """Copy the rows of a table into slices of eight rows."""
    rows = lengths.shape[0]
    for s in prange(slices.shape[0] - 1):
        for e in range(slices[s], slices[s + 1]):
            lane, t = (e - slices[s]) & 7, (e - slices[s]) >> 3
            i = 8 * s + lane
            if i < rows and t < lengths[i]:
                columns[e] = table_columns[places[i] + t]
                values[e] = table_values[places[i] + t]
            else:
                columns[e] = min(i, rows - 1)
                values[e] = 0.0
