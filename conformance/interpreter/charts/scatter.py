import matplotlib.pyplot as plt

plt.scatter([1, 2], [3, 4], label="ours")
plt.scatter([2, 3], [1, 2], label="theirs")
plt.title("Points")
plt.xlabel("x")
plt.ylabel("y")
plt.xticks([1, 2, 3])
plt.yticks([1, 2, 3, 4])
plt.show()
