import matplotlib.pyplot as plt

plt.plot([1, 2, 3], [1, 4, 9], label="squares")
plt.plot([1, 2, 3], [3, 2, 1])
plt.title("Lines")
plt.xlabel("Time (s)")
plt.ylabel("Way [m]")
plt.xticks([1, 2, 3])
plt.yticks([0, 5, 10])
plt.grid(True)
plt.show()
